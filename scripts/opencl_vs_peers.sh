#!/usr/bin/env bash
# The OpenCL kernels on this machine's GPU against cuBLAS, PyTorch and CLBlast, problem by problem,
# with the goals of bench/targets/opencl_*.txt, as Markdown; status 3 where there is no GPU. Without
# network: ROOFLANE_PEERS_PYTHON names a Python with torch, --rooflane a program built already.
# Usage: scripts/opencl_vs_peers.sh [--quick | --full] [--classes C,...] [--out PREFIX [--resume]]
#          [--cl-device I] [--launches N] [--rooflane PROGRAM]
#        scripts/opencl_vs_peers.sh --csv FILE... [--out PREFIX]   only summarises
exec "$(dirname "$0")/speed_vs_peers.sh" --opencl "$@"
