// app tells its version over HTTP on :8080 and stops on SIGTERM. /healthz answers 200, but 503 while GATE_FILE is set
// and names a file that does not exist: a test that mounts a host directory opens and shuts the gate from outside.
package main

import (
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"syscall"
)

var version = "dev"

func main() {
	go func() {
		stop := make(chan os.Signal, 1)
		signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
		<-stop
		fmt.Println("app", version, "stopping")
		os.Exit(0)
	}()
	host, _ := os.Hostname()
	http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "version=%s host=%s\n", version, host)
	})
	http.HandleFunc("/healthz", healthz)
	fmt.Println("app", version, "listening on 8080")
	fmt.Println(http.ListenAndServe(":8080", nil))
	os.Exit(1)
}

func healthz(w http.ResponseWriter, r *http.Request) {
	if gate := os.Getenv("GATE_FILE"); gate != "" {
		if _, err := os.Stat(gate); err != nil {
			http.Error(w, "the gate is shut", http.StatusServiceUnavailable)
			return
		}
	}
	fmt.Fprintln(w, "ok")
}
