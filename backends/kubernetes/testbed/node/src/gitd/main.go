// gitd ADDRESS DIRECTORY serves the bare repositories of a directory over HTTP, to read and to push to, for anybody.
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
	// Pushes are taken only from somebody who has a name.
	backend := &cgi.Handler{
		Path: filepath.Join(strings.TrimSpace(string(core)), "git-http-backend"),
		Env:  []string{"GIT_PROJECT_ROOT=" + os.Args[2], "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER=anybody"},
	}
	fmt.Println(http.ListenAndServe(os.Args[1], backend))
	os.Exit(1)
}
