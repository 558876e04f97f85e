# Process numbers are kept with the time the process started, so that a number which the kernel gave to somebody else
# since then is never mistaken for ours.

# started PID : when the process started, in clock ticks since boot (field 22; the name before it may hold spaces).
started() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20; }

# remember FILE PID
remember() { echo "$2 $(started "$2")" >"$1"; }

# recall FILE : prints the number while that very process is alive, else fails.
recall() {
	local pid when
	[ -r "$1" ] || return 1
	read -r pid when <"$1"
	[ -n "$when" ] && [ "$(started "$pid")" = "$when" ] && echo "$pid"
}
