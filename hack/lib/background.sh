# Commands that run beside the rest of a script, and end with it. After say.sh.

background_groups=()

# in_background COMMAND... : starts the command in a process group of its own, whose id is then $background. If the script ends before
# the command does, whatever the reason, the whole group is ended.
in_background() {
	set -m # each background job gets a process group
	"$@" </dev/null & # a group that reads the terminal from the background would be stopped
	background=$!
	set +m
	background_groups+=("$background")
}

# wait_for GROUP : waits until the command has ended, and fails as it does.
wait_for() {
	local group kept=() result=0
	wait "$1" || result=$?
	for group in "${background_groups[@]}"; do [ "$group" = "$1" ] || kept+=("$group"); done
	background_groups=(${kept[@]+"${kept[@]}"}) # another process may get this id now
	return "$result"
}

# end_group GROUP : asks its processes to end, again and again, since one that is just being started may not hear it; after 5 s it
# ends them.
end_group() {
	local try
	for try in {1..50}; do
		kill -TERM -- "-$1" 2>/dev/null || return 0 # nobody is left
		sleep 0.1
	done
	kill -KILL -- "-$1" 2>/dev/null || true
}

end_background() {
	local group
	for group in ${background_groups[@]+"${background_groups[@]}"}; do end_group "$group"; done
}
trap end_background EXIT
