# The control plane's programs and their flags. They listen inside the cluster's own network namespace only.
# Needs: $keys, boot.sh, address.sh

# A lost node is noticed after node_grace, and its pods are evicted node_eviction later. Kubernetes' own values
# (40 s and 300 s) are for networks that hiccup; ours is one machine, and tests wait for these.
node_grace=8s
node_eviction=5

start_etcd() {
	local url=http://127.0.0.1:2379
	start etcd etcd --data-dir="$state/etcd" --unsafe-no-fsync \
		--listen-client-urls=$url --advertise-client-urls=$url --listen-peer-urls=http://127.0.0.1:2380
}

start_apiserver() {
	# shellcheck disable=SC2054 # the commas are Kubernetes'
	local flags=(
		--etcd-servers=http://127.0.0.1:2379
		--secure-port=6443 --bind-address=0.0.0.0 --advertise-address="$api_ip"
		--tls-cert-file="$keys/apiserver.crt" --tls-private-key-file="$keys/apiserver.key"
		--service-cluster-ip-range="$service_net" --allow-privileged=true
		# who may do what
		--client-ca-file="$keys/ca.crt" --token-auth-file="$keys/tokens.csv"
		--authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction
		--service-account-issuer=https://kubernetes.default.svc
		--service-account-key-file="$keys/service-accounts.pub"
		--service-account-signing-key-file="$keys/service-accounts.key"
		# to the kubelets: logs, exec, port-forward
		--kubelet-client-certificate="$keys/kubelet-client.crt" --kubelet-client-key="$keys/kubelet-client.key"
		--kubelet-preferred-address-types=InternalIP
		# to extension API servers, such as metrics-server
		--enable-aggregator-routing=true
		--requestheader-client-ca-file="$keys/front-proxy.crt" --requestheader-allowed-names=front-proxy-client
		--requestheader-username-headers=X-Remote-User --requestheader-group-headers=X-Remote-Group
		--requestheader-extra-headers-prefix=X-Remote-Extra-
		--proxy-client-cert-file="$keys/front-proxy-client.crt" --proxy-client-key-file="$keys/front-proxy-client.key"
		"--default-not-ready-toleration-seconds=$node_eviction"
		"--default-unreachable-toleration-seconds=$node_eviction"
	)
	start apiserver kube-apiserver "${flags[@]}"
}

# delegated NAME : the flags by which a component finds the API server and lets it check its own callers.
delegated() {
	local file=$keys/$1.kubeconfig
	echo "--kubeconfig=$file --authentication-kubeconfig=$file --authorization-kubeconfig=$file --leader-elect=false --cert-dir=$keys/$1"
}

start_controller_manager() {
	local flags=(
		--service-account-private-key-file="$keys/service-accounts.key" --root-ca-file="$keys/ca.crt"
		--cluster-signing-cert-file="$keys/ca.crt" --cluster-signing-key-file="$keys/ca.key"
		--use-service-account-credentials=true
		--kube-api-qps=200 --kube-api-burst=400 # at its own 20 it needs 4 s to get its accounts
		--node-monitor-period=1s "--node-monitor-grace-period=$node_grace"
		# volumes are folders of the state folder, which every node mounts at the same place
		--enable-hostpath-provisioner=true --flex-volume-plugin-dir="$state/volume-plugins"
		# the autoscaler's own pace (15 s, 5 min, 5 min) would be most of a test
		--horizontal-pod-autoscaler-sync-period=5s
		--horizontal-pod-autoscaler-downscale-stabilization=15s
		--horizontal-pod-autoscaler-cpu-initialization-period=10s
	)
	# shellcheck disable=SC2046 # several flags, no spaces in them
	start controller-manager kube-controller-manager $(delegated controller-manager) "${flags[@]}"
}

start_scheduler() {
	# shellcheck disable=SC2046
	start scheduler kube-scheduler $(delegated scheduler)
}
