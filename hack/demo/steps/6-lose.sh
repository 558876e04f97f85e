# 6. A restarted memory server has its data still; a lost one has not, and the index says so.
lose_and_restore() {
	local before first second
	before=$(count)
	first=$(memory_pod 0) second=$(memory_pod 1)

	echo "The container of $first ends and is started again:"
	as="k debug $first --image=$TOOLS_IMAGE --target=... -- kill -TERM 1" show end_container "$first"
	soon "$limit" "the container runs again" restarted "$first"
	soon "$limit" "the index is well" settled 2/2 3/3
	same "$before" "$(count)" "pairs after the restart"

	echo
	echo "The pod $second has half of the memory. It is deleted only after it was released:"
	as="k delete pod $second" show kept "$second"
	show k annotate dmmp "$(pool_of "$second")" --overwrite "dmindex.io/release=$second"
	soon "$limit" "the pod is released" released "$second"
	show k delete pod "$second" --timeout="${limit}s"
	show k wait "dmi/$index" --for=condition=DataLost --timeout="${limit}s"
	show k get dmi
	k get dmi "$index" -o 'jsonpath={.status.conditions[?(@.type=="DataLost")].message}{"\n"}'
	same False "$(condition Available)" "available"
	show refused in_tools dmindex get --secret /conn --limit-time 5s "${paths[0]}"
	show refused in_tools dmindex scan --secret /conn --limit-time 5s --count

	echo
	echo "The user decides to start again with an empty index, and to restore the dump:"
	show k patch dmi "$index" --type merge -p '{"spec":{"recovery":{"onDataLoss":"Recreate"}}}'
	soon "$limit" "the index is made anew" settled 2/2 3/3
	same False "$(condition DataLost)" "data lost"
	same 0 "$(count)" "pairs of the new index"
	as="k exec -i tools -- dmindex restore --secret /conn - <$work/all.dump" show restore "$work/all.dump"
	same "$(wc -l <"$work/files")" "$(count)" "pairs after the restore"
	in_tools dmindex get --secret /conn "${paths[0]}" | tee "$work/value"
	describes "$tree/${paths[0]}" "$work/value"
}

restore() { k exec -i tools -- dmindex restore --secret /conn - <"$1"; }

memory_pod() { k get dmi "$index" -o "jsonpath={.status.memoryServers[$1].pod}"; }

# end_container POD : the server's image has no shell, so a container with tools joins it for a moment
end_container() {
	restarts=$(restart_count "$1")
	k debug "$1" --image="$TOOLS_IMAGE" --target="$(k get pod "$1" -o 'jsonpath={.spec.containers[0].name}')" --profile=restricted --quiet -- kill -TERM 1
}
restart_count() { k get pod "$1" -o 'jsonpath={.status.containerStatuses[0].restartCount}'; }
restarted() {
	[ "$(restart_count "$1")" -gt "$restarts" ] &&
		[ "$(k get pod "$1" -o 'jsonpath={.status.containerStatuses[0].ready}')" = true ]
}

# kept POD : its deletion must be refused, and why is shown
kept() {
	local text
	if text=$(k delete pod "$1" --timeout="${limit}s" 2>&1); then fail "the pod was deleted, and its data with it"; fi
	printf '%s\n' "$text"
}
pool_of() { k get pod "$1" -o 'jsonpath={.metadata.labels.dmindex\.io/pool}'; }
released() { [ "$(k get pod "$1" -o 'jsonpath={.metadata.labels.dmindex\.io/released}')" = true ]; }

# refused COMMAND... : the command must fail, and its error is shown
refused() {
	local text
	if text=$("$@" 2>&1); then fail "this was answered, from a tree that lost its data: $text"; fi
	printf '%s\n' "$text"
}
