# 5. Scales the compute pool while a writer and a reader run, deletes a pod of it, and kills a server.
operations=6000 # of a phase, at least

scale() {
	local pod victim
	manifest exercise | k apply -f -
	show k wait pod/exercise --for=condition=Ready --timeout="${limit}s"
	soon "$limit" "the exercise runs" exercise await 1
	soon 30 "before" phase_of before
	show plugin status "$index"

	echo
	echo "A third compute server comes, and takes over a part of the keys of each:"
	exercise phase scaling
	show k scale dmcp "$index-compute" --replicas=3
	soon "$limit" "three compute servers share the keys" scaled 3
	phase_of after
	print_map

	echo
	echo "A pod is deleted; it hands its keys over before it goes:"
	victim=$(k get dmi "$index" -o 'jsonpath={.status.computeServers[0].pod}')
	exercise phase pod-deleted
	show k delete pod "$victim" --timeout="${limit}s"
	soon "$limit" "another pod has replaced it" scaled 3 "$victim"
	phase_of replaced
	print_map

	echo
	echo "A compute server is killed, with changes in its cache that it has not written back. Its log has them:"
	victim=$(k get dmi "$index" -o 'jsonpath={.status.computeServers[0].pod}')
	exercise phase killed
	as="kill -9 of the server in $victim" show kill_server "$victim"
	soon "$limit" "its keys are served again" taken_over "$before_kill"
	soon "$limit" "three compute servers share the keys" scaled 3
	phase_of recovered
	show plugin status "$index"
	show plugin top
	echo
	show k get events --field-selector "involvedObject.kind=DMIndex" -o custom-columns='REASON:.reason,MESSAGE:.message' | grep -E '^REASON|Handover|TakeOver'

	exercise stop
	soon "$limit" "all acknowledged writes are read back" ended
	local log
	log=$(k logs exercise)
	echo "$log"
	same Succeeded "$(k get pod exercise -o 'jsonpath={.status.phase}')" "the exercise"
	grep -q '^failed requests: 0, stale reads: 0, .*, acknowledged writes lost: 0$' <<<"$log" || fail "the exercise did not end as it should"
}

# kill_server POD : on the cluster that the demo booted by a signal; on others the pod goes, without a moment's grace.
kill_server() {
	local node container
	before_kill=$(take_overs)
	if [ "$TARGET" = current ]; then
		k delete pod "$1" --force --grace-period=0
		return
	fi
	node=$(k get pod "$1" -o 'jsonpath={.spec.nodeName}')
	container=$(k get pod "$1" -o 'jsonpath={.status.containerStatuses[0].containerID}')
	hack/cluster/node exec "${node#node}" ctr --namespace k8s.io task kill --signal SIGKILL "${container#containerd://}"
}

take_overs() { k get events -o 'jsonpath={range .items[?(@.reason=="TakeOver")]}{.message}{"\n"}{end}' | wc -l; }

# taken_over N : there is one more than N, and the last one is shown
taken_over() {
	k get events --sort-by=.eventTime -o 'jsonpath={range .items[?(@.reason=="TakeOver")]}{.message}{"\n"}{end}' | tail -n 1
	[ "$(take_overs)" -gt "$1" ]
}

exercise() { k exec exercise -- exercise "$@"; }
phase_of() { exercise phase "$1" && exercise await "$operations"; }

# print_map: start of each range (hexadecimal, empty = from the first key on), owner, epoch
print_map() {
	local start owner epoch
	printf 'partition map, generation %s\n' "$(k get dmi "$index" -o 'jsonpath={.status.map.generation}')"
	while IFS=, read -r start owner epoch; do
		printf '  from %-24s %s (epoch %s)\n' "\"$(base64 -d <<<"$start" | od -An -tx1 -v | tr -d ' \n')\"" "$owner" "$epoch"
	done < <(k get dmi "$index" -o 'jsonpath={range .status.map.ranges[*]}{.start},{.owner},{.epoch}{"\n"}{end}')
}

# scaled N [GONE] : N ready servers, each with a share, and GONE is none of them
scaled() {
	local owners
	settled 2/2 "$1/$1" || return 1
	owners=$(k get dmi "$index" -o 'jsonpath={range .status.map.ranges[*]}{.owner}{"\n"}{end}' | sort -u)
	[ "$(wc -l <<<"$owners")" = "$1" ] && ! grep -qx "${2:-nobody}" <<<"$owners"
}

ended() {
	local phase
	phase=$(k get pod exercise -o 'jsonpath={.status.phase}')
	[ "$phase" = Succeeded ] || [ "$phase" = Failed ]
}
