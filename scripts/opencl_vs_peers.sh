#!/usr/bin/env bash
# Compares the OpenCL kernels on this machine's GPU with cuBLAS, PyTorch and CLBlast, problem by problem,
# with the goals of bench/targets/opencl_*.txt, as Markdown. Status 3 without a GPU. Without network,
# ROOFLANE_PEERS_PYTHON names a Python with torch; --rooflane names an existing program.
# Usage: scripts/opencl_vs_peers.sh [--quick | --full] [--classes C,...] [--out PREFIX [--resume]]
#          [--cl-device I] [--launches N] [--rooflane PROGRAM]
#        scripts/opencl_vs_peers.sh --csv FILE... [--out PREFIX]   only summarises
exec "$(dirname "$0")/speed_vs_peers.sh" --opencl "$@"
