// Command etcd is etcd's own server, under the name that its users know: the package that etcd
// builds it from is called server.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
