# Words for people. Everything goes to stderr, so that stdout stays free for what a script answers.
# Needs bash; sets an ERR trap, so that a script which `set -e` ends says where.

say()  { printf '%s\n' "$*" >&2; }
fail() { say "$(basename "$0"): $*"; exit 1; }
set -o errtrace
trap 'say "$(basename "$0"): ${BASH_SOURCE[0]} line $LINENO: failed: $BASH_COMMAND"' ERR

# now : microseconds of some clock; since BEGIN : seconds from then, with a tenth
now()   { echo "${EPOCHREALTIME/[.,]/}"; }
since() { local us=$(($(now) - $1)); printf '%d.%d' $((us / 1000000)) $((us / 100000 % 10)); }

# working WHAT ... done_working: says what is being done and, afterwards, how long it took.
working()      { task=$1 task_begin=$(now); say "- $task ..."; }
done_working() { say "- $task: $(since "$task_begin") s"; }

# soon LIMIT WHAT COMMAND... : tries the command until it succeeds. Every line that it prints is shown when it differs from the last
# one, as progress. After LIMIT seconds it fails with what the command said last.
soon() {
	local limit=$1 what=$2 begin last='' text
	shift 2
	begin=$(now)
	while true; do
		if text=$("$@" 2>&1); then
			[ -z "$text" ] || [ "$text" = "$last" ] || printf '  %6s s  %s\n' "$(since "$begin")" "$text"
			return 0
		fi
		if [ -n "$text" ] && [ "$text" != "$last" ]; then
			printf '  %6s s  %s\n' "$(since "$begin")" "$text"
			last=$text
		fi
		[ $(($(now) - begin)) -lt $((limit * 1000000)) ] || fail "not within $limit s: $what; last: $text"
		sleep 0.3
	done
}
