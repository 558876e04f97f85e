// Shop is an example of a program that uses an index: a web server that keeps the stock of shops.
//
//	shop --secret /conn              in the cluster; /conn is the mounted Secret INDEX-conn
//	shop --endpoint 127.0.0.1:7480   against dmindex local --atomic-prefix '}'
package main

import (
	"context"
	"errors"
	"flag"
	"log"
	"net/http"
	"os/signal"
	"syscall"
	"time"

	"github.com/dmindex/dmindex/client"
	"github.com/dmindex/dmindex/examples/shop/stock"
)

func main() {
	secret := flag.String("secret", "", "directory where the Secret INDEX-conn is mounted")
	endpoint := flag.String("endpoint", "127.0.0.1:7480", "without --secret: host:port of a server without TLS and password, as those of dmindex local are")
	listen := flag.String("listen", "127.0.0.1:8080", "host:port to serve HTTP at")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, *secret, *endpoint, *listen); err != nil {
		log.Fatal(err)
	}
}

// run serves until ctx ends.
func run(ctx context.Context, secret, endpoint, listen string) error {
	options := client.Options{Endpoints: []string{endpoint}, Insecure: true}
	if secret != "" {
		var err error
		if options, err = client.FromSecret(secret); err != nil {
			return err
		}
	}
	// One client a process is enough: calls of many goroutines to one server travel together. A
	// container whose index cannot be reached in a minute ends and is started again.
	connecting, connected := context.WithTimeout(ctx, time.Minute)
	index, err := client.Connect(connecting, options)
	connected()
	if err != nil {
		return err
	}
	defer index.Close()

	server := &http.Server{Addr: listen, Handler: stock.New(index).Handler(), ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second}
	ended := make(chan error, 1)
	go func() { ended <- server.ListenAndServe() }()
	select {
	case err = <-ended:
		return err
	case <-ctx.Done():
	}
	// Requests that are under way are answered before the client is closed.
	closing, closed := context.WithTimeout(context.Background(), 10*time.Second)
	defer closed()
	err = server.Shutdown(closing)
	if served := <-ended; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}
