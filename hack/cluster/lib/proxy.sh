# kube-proxy: one a node, and one beside the control plane so that the host reaches Services too.
# Needs: $keys, boot.sh, address.sh

start_proxy() { # NODE NAME, ADDRESS, FILE for its configuration
	cat >"$3" <<YAML
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
clientConnection: {kubeconfig: "$keys/proxy.kubeconfig"}
hostnameOverride: $1
bindAddress: $2
clusterCIDR: $pod_net
# 0 means: leave it alone. These belong to the machine, and a namespace may not set them.
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
nftables: {syncPeriod: 10s, minSyncPeriod: 0s}
YAML
	start proxy kube-proxy --config="$3"
}
