// Command coredns is CoreDNS with the plugins that the cluster's Corefile names, and no others: the
// full set brings clients of several clouds, which would be a third of the time to build it.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/template"
)

func main() {
	// The order in which plugins see a query, whatever their order in the Corefile.
	dnsserver.Directives = []string{"bind", "errors", "cache", "template", "kubernetes"}
	coremain.Run()
}
