# 5. Scales the compute pool while a writer and a reader run, and deletes a pod of it.
operations=6000 # of a phase, at least

scale() {
	local pod victim
	manifest exercise | k apply -f -
	show k wait pod/exercise --for=condition=Ready --timeout="${limit}s"
	soon "$limit" "the exercise runs" exercise await 1
	soon 30 "before" phase_of before
	print_map

	exercise phase scaling
	show k scale dmcp "$index-compute" --replicas=3
	soon "$limit" "three compute servers share the keys" scaled 3
	phase_of after
	print_map

	victim=$(k get dmi "$index" -o 'jsonpath={.status.computeServers[0].pod}')
	exercise phase pod-deleted
	show k delete pod "$victim" --timeout="${limit}s"
	soon "$limit" "another pod has replaced it" scaled 3 "$victim"
	phase_of replaced
	show k get pods -l dmindex.io/pool="$index-compute" -o wide

	exercise stop
	soon "$limit" "all acknowledged writes are read back" ended
	k logs exercise
	same Succeeded "$(k get pod exercise -o 'jsonpath={.status.phase}')" "the exercise"
	k logs exercise | grep -q '^failed requests: 0, stale reads: 0, .*, acknowledged writes lost: 0$' || fail "the exercise did not end as it should"
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
