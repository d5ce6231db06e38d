// dies serves like app, /healthz included, and exits 1 after 3 seconds, or as many as DIES_AFTER says.
package main

import (
	"fmt"
	"net/http"
	"os"
	"time"
)

func lifetime() time.Duration {
	if given, err := time.ParseDuration(os.Getenv("DIES_AFTER")); err == nil {
		return given
	}
	return 3 * time.Second
}

func main() {
	http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, "ok") })
	go func() {
		time.Sleep(lifetime())
		fmt.Println("dies: exiting 1")
		os.Exit(1)
	}()
	fmt.Println("dies: listening on 8080")
	fmt.Println(http.ListenAndServe(":8080", nil))
	os.Exit(1)
}
