// crash says so and exits 1.
package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Println("crash: exiting 1")
	os.Exit(1)
}
