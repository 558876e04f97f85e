# What a cluster needs beyond Kubernetes' own programs: names, volumes and, with METRICS=1, measures.
# These run as processes beside the control plane, not as pods, and appear in the cluster as Services without pods.
# Needs: boot.sh, address.sh

# service_of_process NAME "PORTS OF THE SERVICE" "PORTS OF THE PROCESS" [MORE OF THE SERVICE'S SPEC]
service_of_process() {
	cat <<YAML
---
apiVersion: v1
kind: Service
metadata: {name: $1, namespace: kube-system}
spec: {ports: [$2]${4:+, $4}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: $1-process, namespace: kube-system, labels: {kubernetes.io/service-name: $1}}
addressType: IPv4
endpoints: [{addresses: [$api_ip], conditions: {ready: true}}]
ports: [$3]
YAML
}

storage_class() {
	cat <<YAML
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: hostpath, annotations: {storageclass.kubernetes.io/is-default-class: "true"}}
provisioner: kubernetes.io/host-path
YAML
}

metrics_api() {
	cat <<YAML
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1beta1.metrics.k8s.io}
spec:
  group: metrics.k8s.io
  version: v1beta1
  groupPriorityMinimum: 100
  versionPriority: 100
  insecureSkipTLSVerify: true
  service: {name: metrics-server, namespace: kube-system}
YAML
}

start_coredns() {
	# The first block answers "no such name" to all that is not ours: there is no resolver to ask further, and a
	# resolver that stays silent costs every lookup five seconds.
	cat >"$state/Corefile" <<TEXT
.:53 {
  bind $api_ip
  template ANY ANY {
    rcode NXDOMAIN
  }
}
cluster.local:53 in-addr.arpa:53 {
  bind $api_ip
  errors
  kubernetes cluster.local in-addr.arpa {
    kubeconfig $KUBECONFIG dmindex
    pods verified
    ttl 2
  }
  cache 2
}
TEXT
	start coredns coredns -conf "$state/Corefile"
}

start_metrics_server() {
	start metrics-server metrics-server --secure-port=4443 --cert-dir="$keys/metrics-server" \
		--kubeconfig="$KUBECONFIG" --authentication-kubeconfig="$KUBECONFIG" --authorization-kubeconfig="$KUBECONFIG" \
		--kubelet-insecure-tls --kubelet-preferred-address-types=InternalIP \
		--metric-resolution=10s --kubelet-request-timeout=5s
}

start_addons() {
	local dns="{name: dns, port: 53, protocol: UDP}, {name: dns-tcp, port: 53, protocol: TCP}"
	start_coredns
	[ "${METRICS:-0}" != 1 ] || start_metrics_server
	{
		service_of_process kube-dns "$dns" "$dns" "clusterIP: $dns_ip"
		storage_class
		if [ "${METRICS:-0}" = 1 ]; then
			service_of_process metrics-server "{name: https, port: 443, targetPort: 4443}" "{name: https, port: 4443, protocol: TCP}"
			metrics_api
		fi
	} >"$state/addons.yaml"
	await apiserver 90 "addons are known to the API server" kubectl apply -f "$state/addons.yaml"
}
