# What the first process of the cluster and those of the nodes share: starting components and watching them come up.
# Needs: $log_dir and $run_dir of who includes it, $state; process.sh

# start NAME COMMAND... : runs a component in the background.
start() {
	local name=$1
	shift
	"$@" >"$log_dir/$name.log" 2>&1 </dev/null &
	remember "$run_dir/$name.pid" $!
}

# give_up NAME REASON : tells `up`, which shows the reason and the end of the component's log.
give_up() {
	printf '%s\n' "$2" "$log_dir/$1.log" >"$state/failed.new"
	mv "$state/failed.new" "$state/failed"
	exit 1
}

# await NAME SECONDS WHAT COMMAND... : waits until COMMAND succeeds; gives up when the component NAME ends before, or in SECONDS.
await() {
	local name=$1 limit=$2 what=$3 end
	end=$((SECONDS + limit))
	shift 3
	until "$@" >/dev/null 2>&1; do
		recall "$run_dir/$name.pid" >/dev/null || give_up "$name" "$name ended while waiting until $what"
		[ "$SECONDS" -lt "$end" ] || give_up "$name" "not within $limit s: $what"
		sleep .1
	done
	report "$what"
}

# report WHAT : a line with the time since `up` began.
report() {
	local since=$((${EPOCHREALTIME/./} - begin))
	printf '%4d.%d s  %s\n' $((since / 1000000)) $((since / 100000 % 10)) "$1"
}
