//go:build e2e

package e2e

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"math/big"
	"net"
	"net/url"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"
)

// forward forwards a local port to a pod's and returns its address, until the test ends.
func (s *space) forward(pod, port string) string {
	s.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, target.kubectl, "--namespace", s.namespace, "port-forward", "pod/"+pod, ":"+port)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() {
		cancel()
		cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	found := regexp.MustCompile(`127\.0\.0\.1:\d+`).FindString(line)
	if found == "" {
		s.Fatalf("port-forward said %q, %v", line, err)
	}
	return found
}

// probe connects with TLS, speaks, and returns the error that the server answers with; nil if it
// went on talking.
func probe(address string, certificates ...tls.Certificate) error {
	dialer := tls.Dialer{
		NetDialer: &net.Dialer{Timeout: short},
		// It is the server that must refuse; this client takes any.
		Config: &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}},
	}
	if len(certificates) > 0 { // shown even though it is of no authority that the server asks for
		dialer.Config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &certificates[0], nil }
	}
	conn, err := dialer.Dial("tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(short)); err != nil {
		return err
	}
	if _, err := conn.Write([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")); err != nil {
		return err
	}
	_, err = conn.Read(make([]byte, 9)) // the server's SETTINGS, or its refusal
	return err
}

// foreign is a certificate that nobody here has signed.
func foreign(t *testing.T) tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// mint is a certificate that an authority of the operator's signs, with a URI of the caller's
// choice.
func (s *space) mint(authority, uri string) tls.Certificate {
	s.Helper()
	var data struct{ Data map[string][]byte }
	if err := json.Unmarshal([]byte(s.kubectl("get", "secret", authority, "--output=json")), &data); err != nil {
		s.Fatal(err)
	}
	ca, err := tls.X509KeyPair(data.Data["tls.crt"], data.Data["tls.key"])
	if err != nil {
		s.Fatal(err)
	}
	claim, err := url.Parse(uri)
	if err != nil {
		s.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), URIs: []*url.URL{claim},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		s.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca.Leaf, key.Public(), ca.PrivateKey)
	if err != nil {
		s.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// TestSecurity: memory servers speak only with those that the index's or the operator's authority
// knows, and believe the index's only for the index; pods have no more rights than they need.
func TestSecurity(t *testing.T) {
	s := newSpace(t)
	s.newIndex(indexManifest, "2/2", "2/2")

	memory, compute := s.memoryPods()[0], s.computePods()[0]
	// port-forward can end with the first connection that is refused, so each has its own
	refused := func(pod, port, what string, certificates ...tls.Certificate) {
		t.Helper()
		// The words of the refusal can get lost on the way through port-forward; that the
		// connection ends cannot.
		err := probe(s.forward(pod, port), certificates...)
		timeout, ok := err.(net.Error)
		var dial *net.OpError
		if err == nil || ok && timeout.Timeout() || errors.As(err, &dial) && dial.Op == "dial" {
			t.Errorf("port %s of %s, %s: not refused, %v", port, pod, what, err)
		}
		t.Logf("port %s of %s, %s: %v", port, pod, what, err)
	}
	f := func(what string, certificates ...tls.Certificate) {
		t.Helper()
		refused(memory, "7471", what, certificates...)
	}
	f("no certificate")
	f("a foreign certificate", foreign(t))
	index := "dmindex://index/" + s.jsonpath("dmindex/x", "{.metadata.uid}")
	f("the index's authority signs the operator", s.mint("x-ca", "dmindex://operator"))
	f("the index's authority signs another index", s.mint("x-ca", "dmindex://index/other/compute"))
	f("the memory pool's authority signs the index", s.mint("x-memory-ca", index+"/compute"))
	for _, c := range []tls.Certificate{s.mint("x-ca", index), s.mint("x-ca", index+"/compute"), s.mint("x-memory-ca", "dmindex://operator")} {
		if err := probe(s.forward(memory, "7471"), c); err != nil {
			t.Errorf("control port, a certificate of whom it speaks for: %v", err)
		}
	}
	for _, c := range []tls.Certificate{s.mint("x-memory-ca", "dmindex://operator"), s.mint("x-memory-ca", index+"/compute"), s.mint("x-ca", "dmindex://index/other")} {
		refused(compute, "7480", "a certificate of whom it does not speak for", c)
	}
	if conn, err := net.DialTimeout("tcp", s.forward(s.memoryPods()[0], "7470"), short); err != nil {
		t.Error(err)
	} else {
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(short))
		conn.Write([]byte(strings.Repeat("no token ", 100)))
		// It may say why, and ends the connection.
		said, err := io.ReadAll(io.LimitReader(conn, 1<<10))
		if timeout, ok := err.(net.Error); ok && timeout.Timeout() || len(said) == 1<<10 {
			t.Errorf("the fabric goes on with a connection without token: %q, %v", said, err)
		}
		t.Logf("the fabric said %q, %v", said, err)
	}

	for _, pod := range append(s.memoryPods(), s.computePods()...) {
		spec := s.jsonpath("pod/"+pod, "{.spec.automountServiceAccountToken} {.spec.containers[*].securityContext.readOnlyRootFilesystem} "+
			"{.spec.securityContext.runAsNonRoot} {.spec.containers[*].volumeMounts[*].mountPath}")
		s.contains(spec, "false true true")
		if strings.Contains(spec, "serviceaccount") {
			t.Errorf("%s has a token: %s", pod, spec)
		}
	}
	// The operator itself.
	operator := s.kubectl("--namespace", target.system, "get", "pods", "--selector="+operatorSelector, "--output=jsonpath={.items[0].spec.serviceAccountName}")
	user := "--as=system:serviceaccount:" + target.system + ":" + operator
	for _, c := range [][]string{{"create", "namespaces"}, {"create", "clusterroles"}, {"create", "pods", "--subresource=exec"}, {"update", "nodes"}, {"patch", "nodes"},
		{"create", "serviceaccounts", "--subresource=token"}, {"delete", "secrets"}, {"delete", "dmindexes.dmindex.io"}} {
		if out, _ := s.try(append([]string{"auth", "can-i", user}, c...)...); !strings.HasSuffix(out, "no") {
			t.Errorf("the operator may %v: %s", c, out)
		}
	}
}
