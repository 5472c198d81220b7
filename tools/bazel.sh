#!/usr/bin/env bash
# Runs Debian's Bazel (package bazel-bootstrap, 4.2.3) without a network, e.g. tools/bazel.sh test //...
# LIBUCX: the folder of the Python package libucx; found in .venv/ when it is not set.
# What Bazel would download for itself is overridden: by Debian's packages, and by the folders in tools/bazel/.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD

for file in /usr/share/bazel/rules/java/WORKSPACE /usr/share/bazel/rules/proto/WORKSPACE; do
  if ! command -v bazel >/dev/null || [ ! -f "$file" ]; then
    echo "Bazel is missing or incomplete: apt-get install bazel-bootstrap bazel-rules-java bazel-rules-proto" >&2
    exit 1
  fi
done
if [ -z "${LIBUCX:-}" ]; then
  LIBUCX=$(compgen -G "$root/.venv/*/lib/python3*/site-packages/libucx" | head -1 || true)
  if [ -z "$LIBUCX" ]; then
    echo "LIBUCX is not set and .venv/ has no libucx: make test-bazel sets it up" >&2
    exit 1
  fi
fi
prefix=$(tools/find_googletest.sh)

command=${1:-test}
[ $# -gt 0 ] && shift
arguments=()
case $command in
build | run | test | coverage)
  arguments+=(
    --jobs="${BAZEL_JOBS:-2}" --local_ram_resources=4096 --symlink_prefix=/ --dynamic_mode=off
    --color=no --curses=no --show_progress_rate_limit=10
    --repo_env=LIBUCX="$LIBUCX" --repo_env=GTEST_PREFIX="$prefix"
    --cxxopt=-std=c++17 --copt=-Wall --copt=-Wextra --copt=-Werror --copt=-O2 --per_file_copt=tests/.*@-O0
  )
  ;;&
query | cquery | fetch)
  arguments+=(--repo_env=LIBUCX="$LIBUCX" --repo_env=GTEST_PREFIX="$prefix")
  ;;&
test | coverage)
  arguments+=(--test_output=errors --test_timeout=600 --local_test_jobs="${BAZEL_JOBS:-2}")
  ;;&
build | run | test | coverage | query | cquery | fetch)
  arguments+=(
    --override_repository=rules_cc="$root/tools/bazel/rules_cc"
    --override_repository=remote_coverage_tools="$root/tools/bazel/remote_coverage_tools"
    --override_repository=rules_java=/usr/share/bazel/rules/java
    --override_repository=rules_proto=/usr/share/bazel/rules/proto
  )
  ;;
esac
exec bazel --output_user_root="$root/.bazel" --max_idle_secs=60 --host_jvm_args=-Xmx1g "$command" "${arguments[@]}" "$@"
