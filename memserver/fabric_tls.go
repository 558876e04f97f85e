package memserver

import (
	"crypto/tls"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/memserver/ledger"
	"github.com/dmindex/dmindex/pkg/identity"
	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/tcp"
)

// providerTCP is the provider that speaks TLS with those who ask for it.
const providerTCP = "tcp"

// peerName is who has shown a certificate, as Connect calls its callers.
func peerName(state *tls.ConnectionState) (string, error) {
	id, err := identity.FromCertificate(state.PeerCertificates[0])
	return id.String(), err
}

// mayConnect reports whether a client may come as it asks to: under TLS, or in the clear.
func (c *service) mayConnect(r *rpcv1.ConnectRequest) error {
	switch {
	case r.Tls && (r.Provider != providerTCP || c.files == nil):
		return fmt.Errorf("%w: this server offers no TLS over %q", ledger.ErrInvalid, r.Provider)
	case !r.Tls && r.Provider == providerTCP && (c.fabricTLS || c.files != nil && c.files.FabricTLS(r.Index)):
		return status.Errorf(codes.PermissionDenied, "clients of index %s must come under TLS (fabricTLS); this one asked for a connection in the clear: "+
			"give it an image and a configuration that know fabricTLS", r.Index)
	}
	return nil
}

// newTCP makes servers of tcp, which speak TLS with those who ask for it if there are certificates.
func newTCP(files *identity.Files) func(verbs.ServerOptions) (verbs.Server, error) {
	return func(o verbs.ServerOptions) (verbs.Server, error) {
		if files != nil {
			o.TLS = files.ServerConfig(tcp.Protocol)
		}
		return tcp.NewServer(o)
	}
}
