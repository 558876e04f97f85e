# 2. A DMIndex of the samples.
make_index() {
	show k apply -f config/samples/dmindex_demo.yaml
	soon "$limit" "the index is available" settled 2/2 2/2
	show k wait "dmi/$index" --for=condition=Available --timeout=10s
	show k get dmi,dmmp,dmcp,pods -o wide
	manifest tools | k apply -f -
	show k wait pod/tools --for=condition=Ready --timeout="${limit}s"
	password=$(k get secret "$index-conn" -o 'jsonpath={.data.password}' | base64 -d)
}
