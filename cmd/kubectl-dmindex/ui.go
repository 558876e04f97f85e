package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dmindex/dmindex/api/config"
	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/pkg/accept"
)

func uiCommand(o *options) *cobra.Command {
	var listen string
	cmd := &cobra.Command{
		Use:   "ui NAME",
		Short: "Serve the pages of an index's compute servers on this machine, for a browser: servers, ranges, and curves of the last hour",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !accept.Loopback(listen) {
				return fmt.Errorf("--listen %s: who reaches it reads the pages with your rights; give a loopback address such as 127.0.0.1:8080", listen)
			}
			c, err := o.connect()
			if err != nil {
				return err
			}
			v, err := c.readIndex(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			l, err := net.Listen("tcp", listen)
			if err != nil {
				return fmt.Errorf("%w; give --listen another port, or 127.0.0.1:0 for any", err)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "http://%s/\nit ends with Ctrl-C\n", l.Addr())
			u := &ui{
				address: l.Addr().(*net.TCPAddr),
				pods: func(ctx context.Context) ([]string, error) {
					return c.computePods(ctx, v.index.Namespace, v.index.Name)
				},
				get: func(ctx context.Context, pod, path string) ([]byte, error) {
					return c.pods.CoreV1().Pods(v.index.Namespace).ProxyGet("http", pod, fmt.Sprint(config.PortMetrics), path, nil).DoRaw(ctx)
				},
			}
			return u.serve(cmd.Context(), l)
		},
	}
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:0", "loopback address of the pages; port 0 = any that is free")
	return cmd
}

// computePods are the pods of an index's compute servers, those that are ready first.
func (c *cluster) computePods(ctx context.Context, namespace, name string) (pods []string, err error) {
	index := &dmv1.DMIndex{}
	if err := c.objects.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, index); err != nil {
		return nil, err
	}
	for _, ready := range []bool{true, false} {
		for _, s := range index.Status.ComputeServers {
			if (s.State == dmv1.ServerReady) == ready {
				pods = append(pods, s.Pod)
			}
		}
	}
	return pods, nil
}

// mostTried is how many pods are asked for one that answers.
const mostTried = 3

// ui serves the pages of pods: /POD/ and what it links to. / leads to the first one that answers.
type ui struct {
	address *net.TCPAddr
	pods    func(ctx context.Context) ([]string, error)
	get     func(ctx context.Context, pod, path string) ([]byte, error)
}

func (u *ui) serve(ctx context.Context, l net.Listener) error {
	server := &http.Server{Handler: u, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := server.Serve(accept.AtMost(l, 32)); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// uiTypes are the paths that are passed on, with what they are.
var uiTypes = map[string]string{"": "text/html; charset=utf-8", "metrics": "text/plain; charset=utf-8", "describe": "application/json"}

// ServeHTTP implements http.Handler.
func (u *ui) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// A page of somebody else may have its own name lead here, to read with the rights of who runs
	// this.
	if host, port, _ := net.SplitHostPort(r.Host); host != "localhost" && host != u.address.IP.String() || port != fmt.Sprint(u.address.Port) {
		http.Error(w, fmt.Sprintf("ask for http://%s/", u.address), http.StatusMisdirectedRequest)
		return
	}
	if r.Method != http.MethodGet {
		http.Error(w, "only GET is possible", http.StatusMethodNotAllowed)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), answerLimit)
	defer cancel()
	pods, err := u.pods(ctx)
	if err == nil && len(pods) == 0 {
		err = errors.New("the index has no compute server yet: see kubectl dmindex status")
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	if r.URL.Path == "/" {
		u.first(ctx, w, r, pods)
		return
	}
	pod, path, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	kind, known := uiTypes[path]
	if !known || !slices.Contains(pods, pod) {
		http.Error(w, "there is no such page; the servers of the index are "+strings.Join(pods, ", "), http.StatusNotFound)
		return
	}
	text, err := u.get(ctx, pod, path)
	if err != nil {
		http.Error(w, fmt.Sprintf("%s: %v", pod, err), http.StatusBadGateway)
		return
	}
	h := w.Header()
	h.Set("Content-Type", kind)
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	_, _ = w.Write(text) // who asked may be gone
}

// first leads to the first pod that answers. One that does not leaves time for the others.
func (u *ui) first(ctx context.Context, w http.ResponseWriter, r *http.Request, pods []string) {
	var failed []string
	for _, pod := range pods[:min(len(pods), mostTried)] {
		limited, cancel := context.WithTimeout(ctx, answerLimit/mostTried)
		_, err := u.get(limited, pod, "healthz")
		if cancel(); err != nil {
			failed = append(failed, fmt.Sprintf("%s: %v", pod, err))
			continue
		}
		http.Redirect(w, r, "/"+pod+"/", http.StatusFound)
		return
	}
	http.Error(w, "no compute server answers:\n"+strings.Join(failed, "\n"), http.StatusBadGateway)
}
