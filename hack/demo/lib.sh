# What the steps of the demo share.
# Needs: say.sh

namespace=dmindex-demo
index=demo
tree=$(realpath "$(go env GOROOT)/src")
work=bin/demo # lists and the dump
limit=180     # seconds, for anything that is waited for

k() { "$KUBECTL" --namespace "$namespace" "$@"; }

# plugin ARGS... : kubectl dmindex, as one has it who put bin/kubectl-dmindex into their PATH
plugin() { bin/kubectl-dmindex --namespace "$namespace" "$@"; }

# show COMMAND... : prints the command as a user would write it (to the demo's own output), and runs it. $as: other words for it.
show() {
	local words=${as:-$*}
	words=${words/#refused /}
	words=${words/#in_tools /k exec tools -- }
	words=${words/#k /kubectl -n $namespace }
	words=${words/#plugin /kubectl dmindex -n $namespace }
	printf '$ %s\n' "${words/ k exec/ kubectl -n $namespace exec}" >&3
	"$@"
}
exec 3>&1

# in_tools COMMAND... : in the pod "tools", which has dmindex, redis-cli and the index's Secret.
in_tools() { k exec tools -- "$@"; }

step() { # NUMBER TITLE FUNCTION
	local since_begin
	printf '\n== %s. %s\n\n' "$1" "$2"
	since_begin=$(now)
	"$3"
	times+=("$(printf '%8s s  %s. %s' "$(since "$since_begin")" "$1" "$2")")
}

say_times() {
	printf '\n== It all went as it should.\n\n'
	printf '%s\n' "${times[@]}"
	printf '%8s s  altogether\n' "$(since "$begin")"
}

# same WANT GOT WHAT
same() {
	[ "$1" = "$2" ] || fail "$3: \"$2\", not \"$1\""
	printf 'ok: %s: %s\n' "$3" "$2"
}

# same_files WANT GOT WHAT
same_files() {
	diff "$1" "$2" >&2 || fail "$3: the lists differ (< wanted, > got)"
	printf 'ok: %s: %s lines, no difference\n' "$3" "$(wc -l <"$1")"
}

# condition TYPE : status of the index's condition
condition() { k get dmi "$index" -o "jsonpath={.status.conditions[?(@.type=='$1')].status}"; }

# index_is LINE.. : one line on how the index is; succeeds when it is available, settled and as large as asked.
index_line() {
	k get dmi "$index" -o 'jsonpath=memory {.status.memoryReady}, compute {.status.computeReady}, map {.status.map.generation}, available {.status.conditions[?(@.type=="Available")].status} ({.status.conditions[?(@.type=="Available")].reason}), progressing {.status.conditions[?(@.type=="Progressing")].status} ({.status.conditions[?(@.type=="Progressing")].message})'
}

settled() { # MEMORY COMPUTE : both as N/N
	local line
	line=$(index_line)
	echo "$line"
	[[ $line == "memory $1, compute $2, "*"available True"*"progressing False"* ]] &&
		[ "$(k get dmi "$index" -o 'jsonpath={.metadata.generation}')" = "$(k get dmi "$index" -o 'jsonpath={.status.observedGeneration}')" ]
}

# manifest FILE | kubectl apply -f - : a manifest of this folder with the names of its images
manifest() { sed "s|TOOLS_IMAGE|$TOOLS_IMAGE|; s|NAMESPACE|$namespace|" "hack/demo/$1.yaml"; }

# open_forward TARGET : forwards a port of this machine to port 6379 of TARGET, and sets $port.
open_forward() {
	close_forward
	k port-forward "$1" :6379 >"$work/forward.log" 2>&1 &
	forward=$!
	soon 30 "port-forward to $1" grep -q '^Forwarding from 127' "$work/forward.log"
	port=$(sed -n 's/^Forwarding from 127.0.0.1:\([0-9]*\).*/\1/p' "$work/forward.log")
}
close_forward() {
	[ -z "${forward:-}" ] || kill "$forward" 2>/dev/null || true
	forward=''
}

# redis COMMAND... : on this machine, through the forwarded port
redis() { REDISCLI_AUTH=$password redis-cli -p "$port" "$@"; }

# explain: what one wants to see when the demo failed
explain() {
	[ -n "${KUBECTL:-}" ] || return 0
	say; say "== what the cluster says"
	k get dmi,dmmp,dmcp,pods,jobs -o wide >&2 || true
	k describe dmi >&2 | tail -n 40 || true
	k get events --sort-by=.lastTimestamp 2>/dev/null | tail -n 25 >&2 || true
	"$KUBECTL" --namespace "${SYSTEM:-dmindex-system}" logs --tail=25 -l app.kubernetes.io/component=operator >&2 || true
	say; say "the cluster is still up: hack/cluster/kubectl -n $namespace ...; make demo-down ends it"
}
