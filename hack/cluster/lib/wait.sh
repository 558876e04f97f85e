# Waiting, always on a condition and never without a limit.

# wait_until SECONDS COMMAND... : polls until the command succeeds; returns 1 when the time is over.
wait_until() {
	local end=$((SECONDS + $1))
	shift
	until "$@" >/dev/null 2>&1; do
		[ "$SECONDS" -lt "$end" ] || return 1
		sleep .1
	done
}

# gone PID : the process has ended.
gone() { [ ! -d "/proc/$1" ]; }
