// probe is the program that `check` runs in pods: as a server it is something to talk to, as a
// command it looks at the cluster from within a pod.
package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"
)

const usage = `usage:
  probe serve               answers on :8080 with its pod's name; /die ends it with code 1
  probe lookup NAME         prints the addresses of a name
  probe fetch URL           prints what an URL answers
  probe write FILE TEXT
  probe read FILE
  probe filesystem FOLDER   prints the type of file system that is mounted at a folder
`

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "probe:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	command := strings.Join(args[:min(1, len(args))], "")
	switch {
	case command == "serve" && len(args) == 1:
		return serve()
	case command == "lookup" && len(args) == 2:
		return lookup(args[1])
	case command == "fetch" && len(args) == 2:
		return fetch(args[1])
	case command == "write" && len(args) == 3:
		return os.WriteFile(args[1], []byte(args[2]), 0o644)
	case command == "read" && len(args) == 2:
		content, err := os.ReadFile(args[1])
		fmt.Println(string(content))
		return err
	case command == "filesystem" && len(args) == 2:
		return filesystem(args[1])
	}
	return fmt.Errorf("%q is not something it can do\n%s", args, usage)
}

func serve() error {
	name, err := os.Hostname()
	if err != nil {
		return err
	}
	fmt.Println("serving as", name)
	http.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, name) })
	http.HandleFunc("/die", func(http.ResponseWriter, *http.Request) { os.Exit(1) })
	return http.ListenAndServe(":8080", nil)
}

func lookup(name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	addresses, err := net.DefaultResolver.LookupHost(ctx, name)
	slices.Sort(addresses)
	fmt.Println(strings.Join(addresses, " "))
	return err
}

func fetch(url string) error {
	client := http.Client{Timeout: 5 * time.Second}
	response, err := client.Get(url)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", url, response.Status)
	}
	_, err = io.Copy(os.Stdout, response.Body)
	return err
}

// filesystem reads the mount table, whose lines begin with device, folder and type.
func filesystem(folder string) error {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(mounts)) {
		if fields := strings.Fields(line); len(fields) > 2 && fields[1] == folder {
			fmt.Println(fields[2])
			return nil
		}
	}
	return fmt.Errorf("nothing is mounted at %s", folder)
}
