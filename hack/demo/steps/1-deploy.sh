# 1. Builds, boots, installs; and a clean namespace.
deploy() {
	local lines
	mkdir -p "$work"
	lines=$(hack/deploy 2>&3 3>&-) # its words belong to the demo's output
	eval "$lines"
	show "$KUBECTL" get nodes
	show "$KUBECTL" --namespace "$SYSTEM" get deployments,pods
	"$KUBECTL" delete namespace "$namespace" --ignore-not-found --timeout="${limit}s"
	manifest namespace | "$KUBECTL" apply -f -
}
