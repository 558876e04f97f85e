// Command ycsb runs go-ycsb's core workload over its Redis driver, without the drivers of all other
// databases, and prints how long it took. hack/servebench calls it.
//
//	ycsb NAME=VALUE...
//
// The properties are those of go-ycsb; dotransactions=false loads.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/magiconair/properties"
	_ "github.com/pingcap/go-ycsb/db/redis"
	"github.com/pingcap/go-ycsb/pkg/client"
	"github.com/pingcap/go-ycsb/pkg/measurement"
	"github.com/pingcap/go-ycsb/pkg/prop"
	_ "github.com/pingcap/go-ycsb/pkg/workload"
	"github.com/pingcap/go-ycsb/pkg/ycsb"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "ycsb:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	p := properties.NewProperties()
	for _, a := range args {
		name, value, ok := strings.Cut(a, "=")
		if !ok {
			return fmt.Errorf("%q: write name=value", a)
		}
		if _, _, err := p.Set(name, value); err != nil {
			return err
		}
	}
	if _, _, err := p.Set(prop.TableName, p.GetString(prop.TableName, prop.TableNameDefault)); err != nil {
		return err
	}
	measurement.InitMeasure(p)
	workload, err := ycsb.GetWorkloadCreator("core").Create(p)
	if err != nil {
		return err
	}
	db, err := ycsb.GetDBCreator("redis").Create(p)
	if err != nil {
		return err
	}
	c := client.NewClient(p, workload, client.DbWrapper{DB: db})
	began := time.Now()
	c.Run(context.Background())
	elapsed := time.Since(began)
	measurement.Output() // failed operations are lines of their own
	fmt.Printf("elapsed seconds: %.6f\n", elapsed.Seconds())
	return nil
}
