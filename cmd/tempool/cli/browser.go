package cli

import (
	"errors"
	"fmt"
	"html/template"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"
)

// browserTime is how long the program that opens a browser may take to fail: some run for as long as the browser does.
const browserTime = 5 * time.Second

// openBrowser opens a page in the user's browser. A link that signs in is a secret, and other users may read the
// arguments of programs: such a link reaches the browser in a file.
func openBrowser(page string) error {
	program := "xdg-open"
	switch {
	case runtime.GOOS == "darwin":
		program = "open"
	case os.Getenv("DISPLAY") == "" && os.Getenv("WAYLAND_DISPLAY") == "":
		return errors.New("no display is available")
	}
	u, err := url.Parse(page)
	// such programs open files and start applications, too
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return fmt.Errorf("the gateway names %q as its dashboard, which is not an http or https URL", page)
	}
	if link := u.Query().Get("link"); link != "" {
		folder, err := os.UserCacheDir()
		if err != nil {
			return err
		}
		if page, err = writeSignIn(filepath.Join(folder, "tempool", "signin"), u, link); err != nil {
			return err
		}
	}
	return openWith(program, page, browserTime)
}

// openWith starts a program with a page. A program that has not ended in time has not failed.
func openWith(program, page string, within time.Duration) error {
	command := exec.Command(program, page)
	if err := command.Start(); err != nil {
		return err
	}
	waited := make(chan error, 1)
	go func() { waited <- command.Wait() }() // until the program ends, or tempool does
	select {
	case err := <-waited:
		return err
	case <-time.After(within):
		return nil
	}
}

// signInPage sends a link to the dashboard that it is for, as a form: so the link is in no address either, which
// browsers keep.
var signInPage = template.Must(template.New("signin").Parse(`<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="referrer" content="no-referrer"><title>Tempool</title>
<form method="post" action="{{.Action}}"><input type="hidden" name="link" value="{{.Link}}">
<button>Open the dashboard</button></form>
<script>document.forms[0].submit()</script></html>
`))

// staleSignIn is the age at which a file of writeSignIn is of no use: its link has expired, and the browser has read it
// or never will.
const staleSignIn = 5 * time.Minute

// writeSignIn writes a page that signs a browser in into a folder that only this user may read, and returns its
// address. It removes old ones.
func writeSignIn(folder string, dashboard *url.URL, link string) (address string, err error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return "", err
	}
	old, _ := filepath.Glob(filepath.Join(folder, "*.html"))
	for _, path := range old {
		if info, err := os.Stat(path); err == nil && time.Since(info.ModTime()) > staleSignIn {
			_ = os.Remove(path)
		}
	}
	file, err := os.CreateTemp(folder, "*.html") // for this user only
	if err != nil {
		return "", err
	}
	defer file.Close()
	action := url.URL{Scheme: dashboard.Scheme, Host: dashboard.Host, Path: "/ui/signin/link"}
	if err := signInPage.Execute(file, map[string]string{"Action": action.String(), "Link": link}); err != nil {
		return "", err
	}
	return (&url.URL{Scheme: "file", Path: file.Name()}).String(), nil
}
