package serve

import (
	"crypto/tls"

	"github.com/dmindex/dmindex/pkg/verbs"
)

// admission asks who a token admits.
func (s *Server) admission(token verbs.Token, state *tls.ConnectionState) (verbs.Peer, error) {
	if a, ok := s.o.Admission.(verbs.TLSAdmission); ok && state != nil {
		return a.AdmitTLS(token, state)
	}
	return s.o.Admission.Admit(token)
}
