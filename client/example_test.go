package client_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dmindex/dmindex/client"
)

// A program in the cluster mounts the Secret my-index-conn and uses the index.
func Example() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()

	options, err := client.FromSecret("/etc/my-index-conn")
	if err != nil {
		fmt.Println(err)
		return
	}
	index, err := client.Connect(ctx, options)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer index.Close()

	if err := index.Put(ctx, []byte("fruit/apple"), []byte("red")); err != nil {
		fmt.Println(err)
		return
	}
	value, err := index.Get(ctx, []byte("fruit/pear"))
	if errors.Is(err, client.ErrNotFound) {
		fmt.Println("no pears")
	} else if err == nil {
		fmt.Printf("pears are %s\n", value)
	}

	// Everything below fruit/, in order, from whichever servers have it.
	for pair, err := range index.Scan(ctx, []byte("fruit/"), []byte("fruit0"), client.ScanOptions{Limit: 100}) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%s is %s\n", pair.Key, pair.Value)
	}
}
