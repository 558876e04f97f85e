package client

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/dmindex/dmindex/pkg/identity/identitytest"
)

func TestFromSecret(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := FromSecret(dir); err == nil || !strings.Contains(err.Error(), "endpoints") {
		t.Errorf("an empty directory: %v", err)
	}
	write("endpoints", "a:7480, b:7480\n")
	write("password", "secret\n")
	o, err := FromSecret(dir)
	if want := (Options{Endpoints: []string{"a:7480", "b:7480"}, PasswordFile: filepath.Join(dir, "password")}); err != nil || !reflect.DeepEqual(o, want) {
		t.Errorf("got %+v, %v", o, err)
	}
	// a password is not sent in the clear because a file is missing
	for _, missing := range []func(){func() {}, func() { write("ca.crt", "\n") }} {
		missing()
		if o, err = FromSecret(dir); err != nil {
			t.Fatal(err)
		}
		if _, err = Connect(context.Background(), o); err == nil || !strings.Contains(err.Error(), "Insecure") {
			t.Errorf("without CA: %v", err)
		}
	}
	write("ca.crt", "PEM")
	if o, err = FromSecret(dir); err != nil || o.Insecure || string(o.CA) != "PEM" {
		t.Errorf("with ca.crt: %+v, %v", o, err)
	}
	write("username", "shop\n")
	if o, err = FromSecret(dir); err != nil || o.User != "shop" {
		t.Errorf("the Secret of a user: %+v, %v", o, err)
	}
	write("endpoints", " \n")
	if _, err := FromSecret(dir); err == nil {
		t.Error("a Secret without endpoints was taken")
	}
}

func TestOptionsSayWhatIsMissing(t *testing.T) {
	f := func(o Options, want string) {
		t.Helper()
		if _, err := Connect(context.Background(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", o, err, want)
		}
	}
	f(Options{Insecure: true}, "Endpoints")
	f(Options{Endpoints: []string{"a:1"}}, "Insecure")
	f(Options{Endpoints: []string{"a:1"}, CA: []byte("x"), Insecure: true}, "either")
	f(Options{Endpoints: []string{"a:1"}, CA: []byte("x")}, "PEM")
	f(Options{Endpoints: []string{"a:1"}, CAFile: "x", Insecure: true}, "either")
	f(Options{Endpoints: []string{"a:1"}, CAFile: "/not/there"}, "/not/there")
	f(Options{Endpoints: []string{"a:1"}, Insecure: true, Limit: -1}, "negative")
}

// TestCAFile: the file counts, as it is at each connection, and CA where it cannot be read.
func TestCAFile(t *testing.T) {
	first, second := identitytest.NewCA(t, "first"), identitytest.NewCA(t, "second")
	file := filepath.Join(t.TempDir(), "ca.crt")
	o := Options{CA: first.PEM, CAFile: file}
	f := func(content []byte, want *identitytest.CA) {
		t.Helper()
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
		config, err := o.tlsConfig()
		if err != nil {
			t.Fatal(err)
		}
		trusted := x509.NewCertPool()
		trusted.AppendCertsFromPEM(want.PEM)
		if !config.RootCAs.Equal(trusted) {
			t.Errorf("with %q, others are trusted", content)
		}
	}
	f(first.PEM, first)
	f(second.PEM, second)
	f([]byte("half of"), first)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if config, err := o.tlsConfig(); err != nil || config.RootCAs == nil {
		t.Errorf("without the file: %v", err)
	}
}

// TestPasswordFile: of the content of a file, what a server takes as its password is shown.
func TestPasswordFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "password")
	f := func(user, content, want string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		shown, err := login{Options{User: user, PasswordFile: file}}.GetRequestMetadata(t.Context())
		if err != nil || shown["authorization"] != "Basic "+base64.StdEncoding.EncodeToString([]byte(want)) {
			t.Errorf("%q of %q: %v, %v; want %q", content, user, shown, err, want)
		}
	}
	f("", "secret\n", "default:secret")
	f("reader", "secret \r\n", "reader:secret")
	f("reader", "\t secret", "reader:\t secret")
	f("", "p\u00e4ss", "default:p\u00e4ss")
}
