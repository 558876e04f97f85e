// Package profile serves the runtime's own profiles (processor time, heap, goroutines, traces)
// beside the metrics of a program, for whoever looks for the cause of what the metrics show. It is
// off unless somebody turns it on: a profile costs time, and says much of a program to whoever
// reaches the port.
package profile

import (
	"context"
	"fmt"
	"net/http"
	"net/http/pprof"
	"os"
	"strconv"
	"time"
)

// Env turns profiles on in a program that is started without the flag, if it is "true". The
// operator sets it in the pods that it makes: an older image does not know the flag.
const Env = "DMINDEX_PPROF"

// Flag and Usage are the flag that turns profiles on.
const (
	Flag  = "pprof"
	Usage = "serve Go's profiles at " + Path + " on the metrics port (or " + Env + "=true)"
)

// Path is where they are.
const Path = "/debug/pprof/"

const (
	longest      = 60 // seconds that a profile may take
	defaultTakes = 30
	slack        = 10 * time.Second // to send it
)

// FromEnv reports what Env says.
func FromEnv() bool { return os.Getenv(Env) == "true" }

// Handler serves Path and what lies below it. One profile that takes time is taken at once; whoever
// wants another one meanwhile is told so. A profile may take longer than the server's other
// answers.
func Handler() http.Handler {
	mux := http.NewServeMux()
	one := make(chan struct{}, 1)
	timed := func(take http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			seconds, err := profileSeconds(r)
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			select {
			case one <- struct{}{}:
				defer func() { <-one }()
			default:
				http.Error(w, "another profile is being taken: wait for its end", http.StatusServiceUnavailable)
				return
			}
			end := time.Now().Add(time.Duration(seconds)*time.Second + slack)
			if err := http.NewResponseController(w).SetWriteDeadline(end); err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			// net/http/pprof asks the server for its limit of answers, which is not this one's.
			take(w, r.WithContext(context.WithValue(r.Context(), http.ServerContextKey, nil)))
		}
	}
	mux.HandleFunc("GET "+Path, func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("seconds") != "" { // the difference of two
			timed(pprof.Index)(w, r)
			return
		}
		pprof.Index(w, r)
	})
	mux.HandleFunc("GET "+Path+"profile", timed(pprof.Profile))
	mux.HandleFunc("GET "+Path+"trace", timed(pprof.Trace))
	mux.HandleFunc("GET "+Path+"symbol", pprof.Symbol)
	return mux
}

// profileSeconds is how long the profile takes that r asks for.
func profileSeconds(r *http.Request) (seconds int, err error) {
	text := r.FormValue("seconds")
	if text == "" {
		return defaultTakes, nil
	}
	if seconds, err = strconv.Atoi(text); err != nil || seconds < 1 || seconds > longest {
		return 0, fmt.Errorf("seconds is %.20q: a profile takes 1 to %d", text, longest)
	}
	return seconds, nil
}
