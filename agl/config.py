"""YAML files and `key=value` overrides, read onto pydantic models. An option that would do nothing is an error."""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import json
import re
import types
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import yaml
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from agl.errors import UserError

ModelT = TypeVar("ModelT", bound=BaseModel)


class _Loader(yaml.SafeLoader):
    """Safe YAML where `1e-5` is a number (YAML 1.1 reads text) and a key that stands twice is an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[object] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                raise yaml.MarkedYAMLError(problem=f"the key {key!r} stands twice", problem_mark=key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep=deep)


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?[0-9][0-9_]*(\.[0-9_]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
)


def load_config(
    model: type[ModelT],
    file: Path | None = None,
    *,
    values: Mapping[str, Any] | None = None,
    overrides: Iterable[str] = (),
) -> ModelT:
    """Build `model` from its defaults, then `file`, then `values`, then `overrides`; the later one wins.

    Args:
        file: a YAML map of fields, nested for nested models.
        values: fields given otherwise, such as command line flags.
        overrides: texts `key=value` as of `--set`; a dot enters a nested model, the value is read as YAML.

    Raises:
        UserError: an unreadable file, an unknown key or a value of the wrong type.
    """
    merged = read_yaml(file) if file is not None else {}
    _check_keys(model, merged, f"in {file}")
    _merge(merged, values or {})
    _check_keys(model, merged, "in the arguments")
    for override in overrides:
        _merge(merged, _parse_override(override))
        _check_keys(model, merged, f"in --set {override}")
    try:
        return model.model_validate_json(json.dumps(merged, default=_plain), strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or model.__name__
        if first["type"] == "missing":
            raise UserError(f"expected the option {place}, got nothing; give it, or write --set {place}=...") from None
        said = first["msg"][0].lower() + first["msg"][1:]
        raise UserError(f"option {place}: {said}, got {first['input']!r}; correct it") from None


def _plain(value: Any) -> Any:
    """What JSON has for a value of Python: the number that a NumPy scalar holds, else its text."""
    return value.item() if type(value).__module__ == "numpy" and value.ndim == 0 else str(value)


def checked_options(make: Callable[..., Any], options: Mapping[str, Any], what: str) -> dict[str, Any]:
    """`options` as keyword arguments of `make`, each of the type that its annotation says (a NumPy number made plain).

    Args:
        what: names `make` in the messages, such as `the environment grit`.

    Raises:
        UserError: an unknown option or a value of the wrong type.
    """
    parameters = inspect.signature(make, eval_str=True).parameters.values()
    named = {one.name: one for one in parameters if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)}
    takes_any = any(one.kind is one.VAR_KEYWORD for one in parameters)
    checked = dict(options)
    legal = [one.name for one in named.values() if one.kind is one.KEYWORD_ONLY or one.default is not one.empty]
    for option, value in options.items():
        if option not in legal and (option in named or not takes_any):
            near = difflib.get_close_matches(str(option), legal, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"legal: {', '.join(legal) or 'none'}"
            raise UserError(f"expected an option of {what}, got {option!r}; {hint}")
        if option not in named or named[option].annotation is inspect.Parameter.empty:
            continue
        try:
            checked[option] = _adapter(named[option].annotation).validate_python(value, strict=True)
        except ValidationError as error:
            said = error.errors(include_url=False)[0]["msg"]
            said = said[0].lower() + said[1:]
            raise UserError(f"option {option} of {what}: {said}, got {value!r}; correct it") from None
    return checked


def _adapter(annotation: Any) -> TypeAdapter[Any]:
    return TypeAdapter(annotation, config=ConfigDict(allow_inf_nan=False, arbitrary_types_allowed=True))


def read_yaml(file: Path) -> dict[str, Any]:
    """The map that a YAML file holds.

    Raises:
        UserError: no such file, no YAML, or no map.
    """
    try:
        content = yaml.load(file.read_text(encoding="utf-8"), _Loader)
    except FileNotFoundError:
        raise UserError(f"expected a YAML file, got {file}, which does not exist; check the path") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"expected a YAML file, got {file}, which cannot be read: {error}") from None
    except yaml.YAMLError as error:
        raise UserError(f"expected YAML in {file}, got {_one_line(error)}; correct the file") from None
    if not isinstance(content, dict):
        raise UserError(f"expected {file} to hold `key: value` lines, got {type(content).__name__}; correct the file")
    return content


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def _parse_override(text: str) -> dict[str, Any]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise UserError(f"expected --set key=value, got {text!r}; write for example --set limits.max_turns=8")
    try:
        parsed: Any = yaml.load(value, _Loader)
    except yaml.YAMLError as error:
        raise UserError(
            f"expected a YAML value in --set {text}, got {_one_line(error)}; quote text with special signs"
        ) from None
    for part in reversed(key.strip().split(".")):
        parsed = {part: parsed}
    return dict(parsed)


def _merge(into: dict[str, Any], values: Mapping[str, Any]) -> None:
    for key, value in values.items():
        old = into.get(key)
        if isinstance(old, dict) and isinstance(value, Mapping):
            _merge(old, value)
        else:
            into[key] = value


def _check_keys(model: type, values: Mapping[str, Any], place: str, path: str = "") -> None:
    legal = _fields(model)
    for key, value in values.items():
        if key not in legal:
            near = difflib.get_close_matches(str(key), legal, n=1)
            hint = f"did you mean {path + near[0]!r}?" if near else "choose one of them"
            names = ", ".join(path + name for name in legal)
            raise UserError(f"unknown option {path + str(key)!r} {place}; legal: {names}; {hint}")
        nested = next((part for part in _parts(legal[key]) if _fields(part)), None)
        if nested is not None and isinstance(value, Mapping):
            _check_keys(nested, value, place, f"{path}{key}.")


def _fields(model: object) -> dict[str, Any]:
    """Field name -> annotation of a pydantic model or dataclass; empty for anything else."""
    if isinstance(model, type) and issubclass(model, BaseModel):
        return {name: field.annotation for name, field in model.model_fields.items()}
    if isinstance(model, type) and dataclasses.is_dataclass(model):
        hints = get_type_hints(model)
        return {field.name: hints[field.name] for field in dataclasses.fields(model)}
    return {}


def _parts(annotation: Any) -> Sequence[Any]:
    return get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)
