# 8. What is there, and what one can do with it.
look_around() {
	local kubectl="kubectl -n $namespace"
	show k get dmi,dmmp,dmcp,pods
	[ "$TARGET" = current ] || printf '\nFor the following:  export KUBECONFIG=%s PATH=%s:$PATH\n' "$KUBECONFIG" "$(dirname "$KUBECTL")"
	cat <<END

  $kubectl describe dmi $index
  bin/kubectl-dmindex -n $namespace status $index        # or kubectl dmindex ..., with bin/ in your PATH
  $kubectl exec -it tools -- dmindex scan --secret /conn --prefix archive/zip/ --limit 10
  $kubectl exec -it tools -- dmindex status --secret /conn
  $kubectl scale dmcp $index-compute --replicas=2
  $kubectl port-forward service/$index 6380:6379 &
  REDISCLI_AUTH=\$($kubectl get secret $index-conn -o 'jsonpath={.data.password}' | base64 -d) redis-cli -p 6380

END
	if [ "$TARGET" = current ]; then
		echo "To take it down: kubectl delete namespace $namespace; helm -n $SYSTEM uninstall dmindex"
	else
		echo "To take it down: make demo-down"
	fi
}
