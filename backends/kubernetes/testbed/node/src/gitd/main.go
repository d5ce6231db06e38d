// gitd ADDRESS DIRECTORY serves the bare repositories of a directory over HTTP, to read and to push to. Those below
// private/ are only for ada with the password hunter2.
package main

import (
	"fmt"
	"net/http"
	"net/http/cgi"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

func main() {
	core, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		fmt.Println("gitd: git cannot be run:", err)
		os.Exit(1)
	}
	// git accepts pushes only from a user with a name.
	backend := &cgi.Handler{
		Path: filepath.Join(strings.TrimSpace(string(core)), "git-http-backend"),
		Env:  []string{"GIT_PROJECT_ROOT=" + os.Args[2], "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER=anybody"},
	}
	fmt.Println(http.ListenAndServe(os.Args[1], guarded(backend)))
	os.Exit(1)
}

func guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		if strings.HasPrefix(r.URL.Path, "/private/") && (user != "ada" || password != "hunter2") {
			w.Header().Set("WWW-Authenticate", `Basic realm="private"`)
			http.Error(w, "not for you", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}
