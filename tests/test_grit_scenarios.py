"""The stories of GRIT: the data files, what sets out-of-distribution stories apart, and the naming schemes."""

from __future__ import annotations

import itertools
import random
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from agl.errors import DataError
from agl.graphs.naming import NameTable, fold
from envs.grit import build, names, scenarios
from envs.grit.graphs import base_graph
from envs.grit.items import FORMS, SCHEMES, TASKS, GritTask, Query
from envs.grit.names import _Distinct
from envs.grit.scenarios import Scenario, Unit
from envs.grit.views import question

IN_DOMAIN = {
    "centrality": (
        "city traffic hubs; emergency response centers; social network key persons; information relay stations"
    ),
    "shortest_path": (
        "data-center latency routing; logistics cost routes; robot energy-efficient paths; network routing paths"
    ),
    "tsp": (
        "parcel delivery tour; sales representative tour; food delivery tour; garbage collection tour; "
        "maintenance inspection tour; school bus route"
    ),
    "coloring": (
        "Wi-Fi channel assignment; cellular frequency planning; radio channel allocation; event loudspeaker placement; "
        "exam timetabling; map region coloring; interference-aware equipment layout"
    ),
    "bfs": ("post-disaster inspection sweep; tourist exploration route; UAV area scanning; building safety inspection"),
    "vertex_cover": (
        "server monitoring placement; road intersection cameras; railway security posts; social liaison selection; "
        "pipeline sensor placement; campus patrol posts"
    ),
}
"""The noun phrases of the paper (arXiv 2608.27142)."""

OOD = {
    "centrality": (
        "airline transfer hubs; landmark papers in a citation web; critical power substations; "
        "key tables in a data-lineage map"
    ),
    "shortest_path": (
        "wheelchair-friendly museum routes; water pumping lines; mountain-hut hiking times; "
        "file-copy chains between archives"
    ),
    "tsp": (
        "telescope pointing sequence; drill-hole sequence on a circuit board; mobile vaccination van round; "
        "vineyard soil-sampling round"
    ),
    "coloring": (
        "aircraft gate assignment; processor register allocation; shift rosters with incompatible staff; "
        "aquarium tank allocation"
    ),
    "bfs": ("rumour spread by contact rounds; malware containment scan; library alarm relay; genealogy record search"),
    "vertex_cover": (
        "wildlife-corridor ranger huts; border-crossing checkpoints; fibre-joint auditing; "
        "conflict-of-interest exclusion lists"
    ),
}

ALL = scenarios.read_scenarios(scenarios.FOLDER)


def test_the_titles_are_the_published_ones() -> None:
    for ood, published in ((False, IN_DOMAIN), (True, OOD)):
        for task in TASKS:
            told = [scenario.title for scenario in scenarios.scenarios(task, ood)]
            assert sorted(told) == sorted(published[task].split("; "))
    assert Counter(scenario.ood for scenario in ALL) == {False: 31, True: 24}


def test_stories_vary() -> None:
    for scenario in ALL:
        assert len(scenario.opening) >= 3
        assert len(scenario.edges) >= 3
        assert len(scenario.question) >= 2
        assert len(scenario.distractors) >= 5
    for place in ("opening", "edges", "closing", "question", "distractors"):
        texts = [text for scenario in ALL for text in as_texts(getattr(scenario, place))]
        shared = [text for text, count in Counter(texts).items() if count > 1]
        assert len(shared) <= 0.02 * len(texts), shared


def as_texts(value: str | tuple[str, ...]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else value


# --- Files that break a rule ---------------------------------------------------------------------------------------

GOOD = yaml.safe_load((scenarios.FOLDER / "shortest_path_logistics_cost.yaml").read_text())
TOUR = yaml.safe_load((scenarios.FOLDER / "tsp_parcel_delivery.yaml").read_text())
DISTRACTORS = ["Birds sing.", "Bells ring.", "Snow falls."]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"edges": ["{a} to {b}: {w}."]}, "edges: expected at least 3 texts, got 1"),
        ({"question": ["From {start} to {end}?"]}, "question: expected at least 2 texts, got 1"),
        ({"opening": ["There are {n} warehouses."]}, "opening: expected at least 2 texts, got 1"),
        ({"distractors": DISTRACTORS}, "distractors: expected at least 4 texts, got 3"),
        (
            {"edges": ["{a} to {b}.", "{a}, {b}: {w}.", "{b}, {a}: {w}."]},
            r"edges: expected exactly once \{a\}, \{b\}, \{w\} in '\{a\} to \{b\}\.'",
        ),
        ({"edges": ["{a}, {a}, {b}: {w}.", "{a}, {b}: {w}.", "{b}, {a}: {w}."]}, "edges: expected exactly once"),
        ({"edges": ["{a}, {b}, {c}: {w}.", "{a}, {b}: {w}.", "{b}, {a}: {w}."]}, "edges: expected exactly once"),
        ({"edges": ["A {w} road joins {a} and {b}.", "{a}, {b}: {w}.", "{b}, {a}: {w}."]}, "edges: write no article"),
        ({"edges": ["See {a}. It is {w} to {b}.", "{a}, {b}: {w}.", "{b}, {a}: {w}."]}, "edges: expected one sentence"),
        ({"edges": ["{a}, {b}: {w}.", "{a}, {b}: {w}.", "{b}, {a}: {w}."]}, "edges: expected different texts"),
        ({"edges": ["Road 66 joins {a}, {b}: {w}.", "{a}, {b}: {w}.", "{b}, {a}: {w}."]}, "edges: write no digits"),
        ({"distractors": [*DISTRACTORS, "There are 7 dogs."]}, "distractors: write no digits"),
        ({"distractors": [*DISTRACTORS, "{a} is old."]}, "distractors: expected no placeholder"),
        ({"distractors": [*DISTRACTORS, "One warehouse is old."]}, "distractors: name no node; 'warehouse'"),
        ({"distractors": [*DISTRACTORS, "Warehouses are old."]}, "distractors: name no node; 'warehouses'"),
        ({"question": ["From {start} where?", "From {start} to {end}?"]}, r"question: expected exactly once \{end\}, "),
        ({"opening": ["Some warehouses.", "There are {n} warehouses."]}, r"opening: expected exactly once \{n\}"),
        ({"roster": "They are called {names}."}, r"roster: expected a sentence that ends with ': \{names\}\.'"),
        ({"roster": "They are {names."}, "roster: unbalanced"),
        ({"closing": "No more roads"}, "closing: expected whole sentences"),
        ({"closing": "No more  roads."}, "closing: expected whole sentences, single blanks"),
        ({"closing": "no more roads."}, "closing: expected a sentence that begins with a capital letter"),
        ({"closing": "No more r\u00f6ads."}, "closing: write plain ASCII"),
        ({"closing": 7}, "closing: expected a text, got 7"),
        ({"edges": "{a}, {b}: {w}."}, "edges: expected a list of texts"),
        ({"unit": None}, "unit must be given exactly for the weighted tasks"),
        ({"unit": ["km"]}, "unit: expected a text like km, or a map with one and many"),
        ({"kind": {"one": "x", "many": "xs", "label": "x"}}, "kind.label: expected capitalised words"),
        ({"kind": {"one": "x", "label": "X"}}, "kind.many: this field is missing"),
        ({"colour": "red"}, "colour: unknown field; the fields are key, title, task"),
        ({"task": "bfs2"}, "task: expected one of shortest_path, bfs, .*, got 'bfs2'"),
        ({"task": "mst"}, "task: expected one of shortest_path, bfs, .*, got 'mst'"),
        ({"ood": "perhaps"}, "ood: expected true or false, got 'perhaps'"),
        ({"domain": "planets"}, r"domain: expected a pool of the part in_domain of names.yaml \(devices, .*'planets'"),
        ({"domain": "villages"}, "domain: expected a pool of the part in_domain"),
        ({"ood": True}, "domain: expected a pool of the part ood"),
    ],
)
def test_a_broken_scenario_is_named(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(GOOD | change))
    with pytest.raises(DataError, match=message) as caught:
        scenarios.read_scenario(path)
    assert str(caught.value).startswith("mine.yaml: ")
    assert "\n" not in str(caught.value)


def test_legs_stand_last_in_a_row(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(TOUR | {"edges": [*TOUR["edges"], "It is {legs} from {a}."]}))
    with pytest.raises(DataError, match=r"mine.yaml: edges: expected a sentence that ends with '\{legs\}\.'"):
        scenarios.read_scenario(path)


@pytest.mark.parametrize("field", sorted(set(GOOD) - {"unit"}))
def test_a_missing_field_is_named(tmp_path: Path, field: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump({key: value for key, value in GOOD.items() if key != field}))
    with pytest.raises(DataError, match=f"mine.yaml: {field}: this field is missing"):
        scenarios.read_scenario(path)


@pytest.mark.parametrize(("text", "message"), [("- a\n- b\n", "a map of fields, got list"), ("a: [", "cannot read")])
def test_a_file_that_is_no_scenario_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(DataError, match=message):
        scenarios.read_scenario(path)


def test_a_title_given_twice_is_named(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(GOOD))
    with pytest.raises(DataError, match=r"two.yaml: title: .*'logistics cost routes' as in one.yaml"):
        scenarios.read_scenarios(tmp_path)
    with pytest.raises(DataError, match="found none"):
        scenarios.read_scenarios(tmp_path / "nothing")


def alter(*place: str, value: Any) -> dict[str, Any]:
    pools = yaml.safe_load(names.POOLS.read_text())
    at = pools
    for key in place[:-1]:
        at = at[key]
    at[place[-1]] = value
    return dict(pools)


WORDS = {"heads": "Ba Be Bi Bo Bu Da De Di", "tails": "lor mor nor por ror sor tor vor"}


@pytest.mark.parametrize(
    ("pools", "message"),
    [
        (alter("in_domain", "places", "second", value="Quay Mill"), "in_domain.places.second needs at least 60 words"),
        (alter("in_domain", "places", "third", value="Quay"), "in_domain.places must have exactly the lists first and"),
        (alter("in_domain", "places", "first", value=7), "in_domain.places.first must be words separated by blanks"),
        (alter("in_domain", "places", "first", value="Or or"), "in_domain.places.first: .*plain capitalised word"),
        (alter("in_domain", "places", "first", value="Or Or"), "in_domain.places.first holds the same word twice"),
        (
            alter("ood", "villages", "word", value={**WORDS, "heads": f"{WORDS['heads']} Or", "tails": "vane mor"}),
            "ood.villages.word needs at least 60",
        ),
        (
            alter(
                "ood", "villages", "word", value={**WORDS, "tails": f"{WORDS['tails']} vane", "heads": "Or Ba Be Bi"}
            ),
            "needs at least 60",
        ),
        (alter("ood", "places", value={"word": WORDS, "before": WORDS}), "'places' stands in in_domain and in ood"),
        (
            alter("ood", "moons", value={"word": {**WORDS, "heads": f"{WORDS['heads']} Al"}, "before": WORDS}),
            None,
        ),
        (
            alter(
                "ood",
                "moons",
                value={
                    "word": {"heads": "Or Ba Be Bi Bo Bu Da De", "tails": WORDS["tails"] + " vane"},
                    "before": WORDS,
                },
            ),
            "'orvane' stands in in_domain.places.first and in ood.moons.word",
        ),
        ({"in_domain": {}}, "expected the two parts in_domain and ood"),
    ],
)
def test_broken_pools_are_named(tmp_path: Path, pools: dict[str, Any], message: str | None) -> None:
    path = tmp_path / "pools.yaml"
    path.write_text(yaml.safe_dump(pools))
    if message is None:
        assert names.read_pools(path)["moons"].ood
        return
    with pytest.raises(DataError, match=message) as caught:
        names.read_pools(path)
    assert str(caught.value).startswith("pools.yaml: ")


# --- What sets out-of-distribution stories apart -------------------------------------------------------------------

FUNCTION_WORDS = frozenset(
    re.findall(
        "[a-z]+",
        """a an the this that these those it its itself he she they them their theirs we you your who whom whose which
    what and or but nor so if as than then when where while whether how why because since though unless until till
    of in on at to from by with without for about between among along across through into onto out off up down over
    under above after before within beside behind near per via upon around against beyond toward towards inside outside
    during is are was were be been being am do does did done has have had having can cannot could may might must shall
    should will would not no none nobody nothing all each every both either neither any some another other others same
    one ones once two only more most less least much many few fewer fewest several such own else here there again also
    too very still yet already just even ever never always now soon often back away together apart therefore thus get
    gets got getting whenever whichever whatever""",
    )
)
TASK_WORDS = frozenset(
    ("breadth", "first", "last", "exactly", "order", "number", "total", "possible", "equally", "way")
)
"""Words that the definition of a task needs, in any story: `breadth first` names the search; `exactly` once, `first`,
`last`, `order`, `number`, `total` and `possible` state what is optimal or counted; `equally` and `way` ("either way")
say that an edge has no direction."""


def graph_texts(scenario: Scenario) -> Iterator[str]:
    """All texts but distractors."""
    yield from (*scenario.opening, scenario.roster, *scenario.edges, scenario.closing, *scenario.question)


def content_words(scenario: Scenario) -> set[str]:
    """Without plural and verb endings. Titles are not told, so they do not count."""
    unit = scenario.unit
    units = [unit.one, unit.many] if isinstance(unit, Unit) else [unit or ""]
    texts = [*graph_texts(scenario), *scenario.distractors, *scenario.kind.model_dump().values(), *units]
    words = re.findall(r"[a-z]+", re.sub(r"\{\w+\}", " ", " ".join(texts).lower()).replace("'s ", " "))
    kept = [word for word in words if not {word, stem(word)} & (FUNCTION_WORDS | TASK_WORDS)]
    return {form for word in kept for form in (word, stem(word))}


def stem(word: str) -> str:
    if len(word) > 3 and word.endswith("s") and not word.endswith("ss"):
        word = word[:-1]
    if len(word) > 5 and word.endswith("ed"):
        word = word[:-2]
    return word[:-3] if len(word) > 6 and word.endswith("ing") else word


def skeleton(text: str) -> str:
    """Placeholders and function words; each run of other words is one underscore."""
    found: list[str] = []
    for token in re.findall(r"\{\w+\}|[A-Za-z']+", text):
        kept = token.startswith("{") or token.lower() in FUNCTION_WORDS | TASK_WORDS
        if kept or found[-1:] != ["_"]:
            found.append(token.lower() if kept else "_")
    return " ".join(found)


def test_stems_and_skeletons() -> None:
    assert [stem(word) for word in ("scans", "scanned", "scanning", "glass", "bus")] == [
        *("scan", "scann", "scann", "glass", "bus"),
    ]
    assert (
        skeleton("A long cable between {a} and {b} has a latency of {w}.") == "a _ between {a} and {b} has a _ of {w}"
    )


def test_no_content_word_is_told_in_both_distributions() -> None:
    known = {word: scenario.key for scenario in ALL if not scenario.ood for word in content_words(scenario)}
    shared = {
        (word, scenario.key, known[word])
        for scenario in ALL
        if scenario.ood
        for word in content_words(scenario)
        if word in known
    }
    assert not shared
    assert len(known) > 800


def test_no_sentence_skeleton_is_told_in_both_distributions() -> None:
    """Of the sentences that carry the graph. Distractors are too short for that ("Candles are forbidden"); they differ
    in their words."""
    known = {skeleton(text): text for scenario in ALL if not scenario.ood for text in graph_texts(scenario)}
    shared = {
        (text, known[skeleton(text)])
        for scenario in ALL
        if scenario.ood
        for text in graph_texts(scenario)
        if skeleton(text) in known
    }
    assert not shared
    assert len(known) > 200


def test_no_name_is_drawn_in_both_distributions() -> None:
    words: dict[bool, set[str]] = {False: set(), True: set()}
    for pool in names.pools().values():
        words[pool.ood] |= {fold(word) for part in (pool.first, pool.second, pool.word, pool.before) for word in part}
    assert words[False].isdisjoint(words[True])
    assert min(map(len, words.values())) > 500
    drawn: dict[bool, set[str]] = {False: set(), True: set()}
    for ood, scheme, seed in itertools.product((False, True), SCHEMES, range(20)):
        for domain in domains(ood):
            found = draw(scheme, 40, seed, domain, ood)
            drawn[ood] |= {fold(form) for forms in found.surfaces() for form in forms}
    assert drawn[False].isdisjoint(drawn[True])


# --- Naming schemes ------------------------------------------------------------------------------------------------


@cache
def domains(ood: bool) -> tuple[str, ...]:
    return tuple(domain for domain, pool in names.pools().items() if pool.ood == ood)


def draw(scheme: Any, n: int, seed: int, domain: str, ood: bool, asked: tuple[int, ...] = ()) -> names.Names:
    rng = random.Random(f"{scheme}/{n}/{seed}/{domain}/{ood}")
    return names.draw(scheme, n, rng, kind="Relay Post", domain=domain, asked=asked, ood=ood)


sizes = st.integers(2, 60)
seeds = st.integers(0, 10**6)


@given(seeds, sizes, st.booleans(), st.data())
@settings(max_examples=60, deadline=None)
def test_random_ids(seed: int, n: int, ood: bool, data: st.DataObject) -> None:
    found = draw("random_id", n, seed, data.draw(st.sampled_from(domains(ood))), ood).primary
    if ood:
        assert all(re.fullmatch("[0-9a-f]{6}", name) and re.search("[a-f]", name) for name in found)
        return
    ids = [int(name.removeprefix("Relay Post ")) for name in found]
    assert all(1 <= number <= 10_000 for number in ids)
    assert ids != sorted(ids)
    assert not any(a != b and b.startswith(a) for a in found for b in found)


@given(seeds, sizes, st.booleans(), st.data())
@settings(max_examples=60, deadline=None)
def test_semantic_names_come_from_the_pool(seed: int, n: int, ood: bool, data: st.DataObject) -> None:
    domain = data.draw(st.sampled_from(domains(ood)))
    pool = names.pools()[domain]
    for name in draw("semantic", n, seed, domain, ood).primary:
        first, _, second = name.partition(" ")
        if not ood:
            assert first in pool.first
            assert second in pool.second
        else:
            assert first in pool.word if not second else first in pool.before and second in pool.word


@given(seeds, sizes, st.booleans(), st.data())
@settings(max_examples=60, deadline=None)
def test_mixed_names(seed: int, n: int, ood: bool, data: st.DataObject) -> None:
    asked = tuple(data.draw(st.lists(st.integers(0, n - 1), max_size=2, unique=True)))
    found = draw("mixed", n, seed, data.draw(st.sampled_from(domains(ood))), ood, asked)
    aliased = Counter(found.aliases.values())
    assert len(aliased) == max(2, round(0.3 * n))
    assert set(aliased.values()) <= {1, 2}
    assert set(asked) <= set(aliased)
    assert not any(" " in alias for alias in found.aliases)


def test_mixed_names_have_every_form() -> None:
    wanted = {
        False: (r"0x[0-9A-F]{5}", r"[a-z]{2}[_#~@]\w\w[_#~@]\w\d", r"[a-z]{2}-loc-\d+", r"[A-Z]\w+ \w+", r"\d{3,4}"),
        True: (r"h[0-9a-f]{7}", r"[a-z]{2}[=%+^]\w\w[=%+^]\w\d", r"[a-z]{2}\d\d", r"([A-Z]\w+ )?[A-Z]\w+", r"\d{6}"),
    }
    for ood, patterns in wanted.items():
        counts: Counter[str] = Counter()
        for seed, domain in itertools.product(range(10), domains(ood)):
            for name in draw("mixed", 40, seed, domain, ood).primary:
                (form,) = [pattern for pattern in patterns if re.fullmatch(pattern, name)]
                counts[form] += 1
        assert set(counts) == set(patterns)
        assert min(counts.values()) > 0.1 * sum(counts.values())


@given(st.lists(st.text("ab -_", min_size=1, max_size=6), max_size=12))
@settings(max_examples=200, deadline=None)
def test_a_confusable_name_is_refused(wanted: list[str]) -> None:
    chosen = _Distinct()
    kept: list[str] = []
    for name in filter(None, map(fold, wanted)):
        expected = not any(names.confusable(name, other) for other in kept)
        assert chosen.add(name) == expected
        if expected:
            kept.append(name)


def test_typos_keep_the_ends_of_words() -> None:
    rng = random.Random(0)
    for domain, pool in names.pools().items():
        for _ in range(200):
            name = pool.name(rng)
            garbled = names._typo(rng, name)
            assert garbled != name, domain
            for word, other in zip(garbled.split(" "), name.split(" "), strict=True):
                assert word[0] == other[0]
                assert word[1:]


# --- The questions -------------------------------------------------------------------------------------------------


@cache
def told() -> tuple[GritTask, ...]:
    """Every scenario in every view."""
    found = []
    for ood in (False, True):
        split = build.Split("probe", 5, 11, 1, tsp_shift=0, ood=ood)
        for task, view in itertools.product(TASKS, itertools.product(FORMS, SCHEMES)):
            for graph in range(len(scenarios.scenarios(task, ood))):
                found.append(build.item(split, build.Recipe(), task, graph, view))
    return tuple(found)


def test_every_scenario_is_told() -> None:
    assert {item.scenario for item in told()} == {scenario.key for scenario in ALL}


AN = re.compile(r"\b[Aa]n (?![aeio]|hour|heir|unu)\w+|\b[Aa] (?=[aeio](?!ne\b|nce\b)|hour)\w+")


def test_articles_fit() -> None:
    assert AN.findall("an owl, a one, a yes, an hour, a unit") == []
    assert len(AN.findall("a owl, an yes, a hour, an unit")) == 4
    for scenario in ALL:
        for text in (*graph_texts(scenario), *scenario.distractors):
            assert not AN.search(text), (scenario.key, text)
    for item in told():
        for text in (item.question.split("\n\n")[-2], item.question.split("\n\n")[-1]):
            if item.scheme == "random_id" and not item.ood:
                assert not AN.search(text), (item.id, text)


SLIP = re.compile(r"  | [.,;?](?!\.)|(?<!\.)\.\.(?!\.)| \n|[{@](?:a|b|w|n|legs|one|many|start|end)\b")


def test_questions_are_clean_text() -> None:
    assert all(SLIP.search(text) for text in ("a  b", "a .", "a..", "a \n", "so {w}", "@many"))
    units = {scenario.key: scenario.unit for scenario in ALL}
    for item in told():
        parts = item.question.split("\n\n")
        assert item.question.isascii()
        assert len(parts) == (3 if item.form == "standard" else 4)
        for part in parts[:-1]:
            assert not SLIP.search(part), (item.id, part)
        assert all(part.endswith((".", "?")) for part in parts[1:])
        unit = units[item.scenario]
        if item.form == "realistic" and isinstance(unit, Unit):
            wrong = rf"(?<![\w.-])1 {unit.many}\b|(?<![\w.-])(?:[2-9]|10) {unit.one}\b"
            assert not re.search(wrong, item.question), item.id


def test_only_names_begin_a_sentence_in_lower_case() -> None:
    for item in told():
        if item.form == "realistic" and item.scheme in ("random_id", "semantic") and not item.ood:
            for sentence in re.split(r"(?<=[.?])\s+", item.question.replace("...", "")):
                assert re.match(r"[A-Z(]|\\boxed|, |\]", sentence), (item.id, sentence)


def test_unicode_noise() -> None:
    edges = base_graph("tsp", 9, random.Random(0))
    scenario = next(scenario for scenario in ALL if "'" in scenario.roster and scenario.task == "tsp")
    pool = scenario.domain
    plain = names.draw("semantic", 9, random.Random(3), kind="Stop", domain=pool)
    noisy = names.draw("semantic", 9, random.Random(3), kind="Stop", domain=pool, unicode=True)
    assert "".join(plain.primary).isascii()
    curly = [name for name in noisy.primary if "\u2019s " in name]
    assert 0 < len(curly) < 9
    table = NameTable(noisy.primary)
    assert all(table.name(name.replace("\u2019", "'")) == name for name in noisy.primary)
    texts = [
        question("realistic", "tsp", noisy, edges, Query(), scenario, random.Random(0), unicode=unicode)
        for unicode in (False, True)
    ]
    assert "'" in texts[0]
    assert "'" not in texts[1]
    assert fold(texts[0]) == fold(texts[1])
