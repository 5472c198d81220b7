#!/usr/bin/env bash
# Runs test programs, from the root of the repository, TESTS_AT_ONCE at a time (by default one for each core), each within a number of
# seconds; shows the output of those that fail. One that ends with 77 says in its last line why it cannot run here.
# EMULATOR is a command that runs them. TFS_TEST_SECONDS names a folder that keeps what they took. Usage: tools/run_core_tests.sh SECONDS PROGRAM...
set -uo pipefail
seconds=$1
shift
if [ $# -eq 0 ]; then
  echo "no test program selected" >&2
  exit 1
fi
verdicts=$(mktemp -d)
trap 'rm -rf "$verdicts"' EXIT

# Prints one line for a program, after its output when it has failed; leaves a file in `verdicts` that says how it ended.
run() {
  local number=$1 program=$2 log=$2.log started=${EPOCHREALTIME/[.,]/} verdict=passed kept=passed code=0 counted milliseconds
  timeout --kill-after=10 "$seconds" ${EMULATOR:-} "$program" >"$log" 2>&1 || code=$?
  if [ $code -ne 0 ]; then
    verdict="FAILED, exit status $code" kept=failed
    [ $code -eq 124 ] && verdict="FAILED, not done after $seconds s"
    [ $code -eq 77 ] && verdict="SKIPPED: $(tail -n 1 "$log")" kept=skipped
  fi
  counted=$(grep -oE '[0-9]+ tests? from' "$log" | head -1)
  milliseconds=$(((${EPOCHREALTIME/[.,]/} - started) / 1000))
  local line
  printf -v line '  %-45s %s (%s%d ms)' "${program#*tests/core/}" "$verdict" "${counted:+${counted% from}, }" "$milliseconds"
  if [ $kept = failed ]; then
    printf '%s\n%s\n' "$line" "$(tail -n 200 "$log")"
  else
    printf '%s\n' "$line"
  fi
  if [ -n "${TFS_TEST_SECONDS:-}" ]; then
    mkdir -p "$TFS_TEST_SECONDS"
    printf '["core", "tests/core/%s", %d.%03d]\n' "${program#*tests/core/}" $((milliseconds / 1000)) $((milliseconds % 1000)) \
      >>"$TFS_TEST_SECONDS/core.jsonl"
  fi
  echo "$program" >"$verdicts/$number.$kept"
}

number=0
for program in "$@"; do
  while [ "$(jobs -pr | wc -l)" -ge "${TESTS_AT_ONCE:-$(nproc)}" ]; do
    wait -n
  done
  number=$((number + 1))
  run "$number" "$program" &
done
wait

passed=$(find "$verdicts" -name '*.passed' | wc -l)
skipped=$(find "$verdicts" -name '*.skipped' | wc -l)
if [ $((passed + skipped)) -ne $# ]; then
  echo "failed: $(cat "$verdicts"/*.failed 2>/dev/null | tr '\n' ' ')" >&2
  exit 1
fi
echo "  $passed test programs passed$([ "$skipped" -eq 0 ] || echo ", $skipped skipped")"
