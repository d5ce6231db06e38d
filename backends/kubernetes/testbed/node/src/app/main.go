// app reports its version over HTTP on :8080, and its commit from COMMIT, and stops on SIGTERM. An image that is built on
// top of it may set another version in the file /version. /healthz answers 200, but 503 while GATE_FILE is set
// and names a file that does not exist: a test that mounts a host directory opens and shuts the gate from outside.
// A version that REFUSES names exits at once; one that ERRS names answers every tenth request with an error. /metrics counts
// the requests by their status, as Prometheus reads it.
// `app migrate succeeds|fails|hangs` is a release command: it says that it has begun, and ends so after three seconds, or never.
// `app migrate records URL NAME` does so too, and keeps a table of migrations in PostgreSQL: a row for each time that it began.
package main

import (
	"database/sql"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	_ "github.com/lib/pq"
)

var version = "dev"

func main() {
	if len(os.Args) == 3 && os.Args[1] == "migrate" {
		migrate(os.Args[2])
	}
	if len(os.Args) == 5 && os.Args[1] == "migrate" && os.Args[2] == "records" {
		record(os.Args[3], os.Args[4])
	}
	if os.Getenv("REFUSES") == version {
		fmt.Println("app", version, "refuses to run here")
		os.Exit(1)
	}
	go func() {
		stop := make(chan os.Signal, 1)
		signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
		<-stop
		fmt.Println("app", version, "stopping")
		os.Exit(0)
	}()
	host, _ := os.Hostname()
	if built, err := os.ReadFile("/version"); err == nil {
		version = strings.TrimSpace(string(built))
	}
	var good, bad, count atomic.Int64
	http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if os.Getenv("ERRS") == version && count.Add(1)%10 == 0 {
			bad.Add(1)
			http.Error(w, "an error", http.StatusInternalServerError)
			return
		}
		good.Add(1)
		fmt.Fprintf(w, "version=%s host=%s commit=%s\n", version, host, os.Getenv("COMMIT"))
	})
	http.HandleFunc("/healthz", healthz)
	http.HandleFunc("/metrics", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		fmt.Fprintln(w, "# TYPE http_requests_total counter")
		fmt.Fprintf(w, "http_requests_total{code=\"200\"} %d\nhttp_requests_total{code=\"500\"} %d\n", good.Load(), bad.Load())
	})
	fmt.Println("app", version, "listening on 8080")
	fmt.Println(http.ListenAndServe(":8080", nil))
	os.Exit(1)
}

func migrate(how string) {
	fmt.Println("migrate", version, "has begun")
	time.Sleep(3 * time.Second)
	switch how {
	case "succeeds":
		fmt.Println("migrate", version, "is done")
		os.Exit(0)
	case "hangs":
		time.Sleep(time.Hour)
	}
	fmt.Println("migrate", version, "failed")
	os.Exit(1)
}

func record(url, name string) {
	database, err := sql.Open("postgres", url)
	execute := func(statement string, arguments ...any) {
		if err == nil {
			_, err = database.Exec(statement, arguments...)
		}
		if err != nil {
			fmt.Println("migrate", version, "failed:", err)
			os.Exit(1)
		}
	}
	execute("CREATE TABLE IF NOT EXISTS app_migrations (name text, version text, done boolean NOT NULL DEFAULT false)")
	execute("INSERT INTO app_migrations (name, version) VALUES ($1, $2)", name, version)
	fmt.Println("migrate", version, "has begun")
	time.Sleep(3 * time.Second)
	execute("UPDATE app_migrations SET done = true WHERE name = $1", name)
	fmt.Println("migrate", version, "is done")
	os.Exit(0)
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
