package main

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dmindex/dmindex/client"
	"github.com/dmindex/dmindex/pkg/accept"
	"github.com/dmindex/dmindex/pkg/keyrange"
)

// defaultEndpoint is where `dmindex local` serves the SDK unless told otherwise.
const defaultEndpoint = "127.0.0.1:7480"

// access says which index to talk to.
type access struct {
	secret, endpoint, user, passwordFile, caFile string
	limit                                        time.Duration
}

func (a *access) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&a.secret, "secret", "", "directory where the Secret NAME-conn of the index is mounted; it replaces the other connection flags but --endpoint")
	f.StringVar(&a.endpoint, "endpoint", defaultEndpoint, "host:port of the index's SDK port")
	f.StringVar(&a.user, "user", "", "who logs in; empty = the user default")
	f.StringVar(&a.passwordFile, "password", "", "file with the password")
	f.StringVar(&a.caFile, "ca", "", "file with the CA of the servers' certificates; empty = without TLS, on loopback")
	f.DurationVar(&a.limit, "limit-time", 10*time.Second, "time limit of one operation, retries included")
}

// connect connects to the index.
func (a *access) connect(ctx context.Context) (*client.Client, error) {
	o, err := a.options()
	if err != nil {
		return nil, err
	}
	o.Limit = a.limit
	c, err := client.Connect(ctx, o)
	if err != nil && a.secret == "" && a.endpoint == defaultEndpoint {
		return nil, fmt.Errorf("%w (nothing was said about where the index is: start `dmindex local`, or give --endpoint or --secret)", err)
	}
	return c, err
}

func (a *access) options() (client.Options, error) {
	if a.secret != "" {
		o, err := client.FromSecret(a.secret)
		if a.endpoint != defaultEndpoint {
			o.Endpoints = strings.Split(a.endpoint, ",")
		}
		return o, err
	}
	o := client.Options{Endpoints: strings.Split(a.endpoint, ","), User: a.user, PasswordFile: a.passwordFile}
	if a.caFile == "" {
		for _, e := range o.Endpoints {
			if !accept.Loopback(e) {
				return o, fmt.Errorf("endpoint %s is not on loopback: name the servers' CA with --ca, or the index's Secret with --secret", e)
			}
		}
		o.Insecure = true
		return o, nil
	}
	o.CAFile = a.caFile
	return o, nil
}

// with runs f with a connection.
func (a *access) with(ctx context.Context, f func(*client.Client) error) error {
	c, err := a.connect(ctx)
	if err != nil {
		return err
	}
	return errors.Join(f(c), c.Close())
}

// onIndex completes a command that works on an index: it gets the flags that say which one. plan
// makes of the arguments what to do with the connection, and refuses bad ones before anybody is
// asked.
func onIndex(cmd *cobra.Command, plan func(cmd *cobra.Command, args []string) (func(*client.Client) error, error)) *cobra.Command {
	var a access
	cmd.GroupID = "use"
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		do, err := plan(cmd, args)
		if err != nil {
			return err
		}
		return a.with(cmd.Context(), do)
	}
	a.flags(cmd)
	return cmd
}

// notation is how keys are written on the command line.
type notation struct{ name string }

func (n *notation) flag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&n.name, "key", "text", "how keys are written: text, hex, or uint64 (decimal)")
}

func (n *notation) parse(text string) ([]byte, error) {
	switch n.name {
	case "text":
		return []byte(text), nil
	case "hex":
		key, err := hex.DecodeString(text)
		if err != nil {
			return nil, fmt.Errorf("key %s: %w", keyrange.Quote([]byte(text)), err)
		}
		return key, nil
	case "uint64":
		v, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("key %s is no decimal number of 64 bits", keyrange.Quote([]byte(text)))
		}
		return binary.BigEndian.AppendUint64(nil, v), nil
	}
	return nil, fmt.Errorf("--key %s: write text, hex or uint64", n.name)
}

func (n *notation) print(key []byte) string {
	switch {
	case n.name == "hex":
		return hex.EncodeToString(key)
	case n.name == "uint64" && len(key) == 8:
		return strconv.FormatUint(binary.BigEndian.Uint64(key), 10)
	}
	return string(key)
}
