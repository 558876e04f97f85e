package client

import (
	"context"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
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
	f(Options{Endpoints: []string{"a:1"}, Insecure: true, Limit: -1}, "negative")
}
