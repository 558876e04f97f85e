# Keys, certificates and kubeconfig files. Every cluster has new ones: users are known by random tokens.
# Needs: $keys, address.sh

new_key() { openssl ecparam -genkey -name prime256v1 -noout -out "$keys/$1.key" 2>/dev/null; }

# new_authority NAME
new_authority() {
	new_key "$1"
	openssl req -x509 -new -key "$keys/$1.key" -out "$keys/$1.crt" -subj "/CN=dmindex $1" -days 365
}

# new_certificate AUTHORITY NAME SUBJECT [ALTERNATIVE NAMES]
new_certificate() {
	new_key "$2"
	openssl req -new -key "$keys/$2.key" -subj "$3" |
		openssl x509 -req -CA "$keys/$1.crt" -CAkey "$keys/$1.key" -CAcreateserial -days 365 -out "$keys/$2.crt" \
			-extfile <(echo "${4:+subjectAltName=$4}") 2>/dev/null
}

# new_user USER UID FILE [GROUP] : a token, and the kubeconfig file that presents it.
new_user() {
	local token
	token=$(openssl rand -hex 16)
	echo "$token,$1,$2${4:+,\"$4\"}" >>"$keys/tokens.csv"
	cat >"$3" <<YAML
apiVersion: v1
kind: Config
current-context: dmindex
contexts: [{name: dmindex, context: {cluster: dmindex, user: "$1"}}]
clusters: [{name: dmindex, cluster: {server: "https://$api_ip:6443", certificate-authority-data: $(base64 -w0 "$keys/ca.crt")}}]
users: [{name: "$1", user: {token: $token}}]
YAML
}

make_keys() {
	umask 077
	mkdir -p "$keys"
	new_authority ca
	new_certificate ca apiserver /CN=kube-apiserver \
		"DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,DNS:kubernetes.default.svc.cluster.local,IP:$service_ip,IP:$api_ip,IP:127.0.0.1"
	new_certificate ca kubelet-client /O=system:masters/CN=kube-apiserver-kubelet-client
	new_authority front-proxy # separate from ca: who holds a certificate of this one may speak for any user
	new_certificate front-proxy front-proxy-client /CN=front-proxy-client
	new_key service-accounts
	openssl ec -in "$keys/service-accounts.key" -pubout -out "$keys/service-accounts.pub" 2>/dev/null
	new_user admin admin "$state/kubeconfig" system:masters
	new_user system:kube-controller-manager kcm "$keys/controller-manager.kubeconfig"
	new_user system:kube-scheduler scheduler "$keys/scheduler.kubeconfig"
	new_user system:kube-proxy proxy "$keys/proxy.kubeconfig"
	local i
	for i in $(seq "$node_count"); do
		new_user "system:node:node$i" "node$i" "$keys/node$i.kubeconfig" system:nodes
	done
	umask 022
}
