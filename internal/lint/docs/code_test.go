package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// exported returns the exported names of a Go package, methods as Type.Method, fields as Type.Field.
func exported(t *testing.T, folder string) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	for _, file := range goFiles(t, folder) {
		of := "" // of the fields
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if n.Recv == nil {
					names[n.Name.Name] = true
				} else {
					names[strings.TrimPrefix(types.ExprString(n.Recv.List[0].Type), "*")+"."+n.Name.Name] = true
				}
				return false
			case *ast.TypeSpec:
				names[n.Name.Name], of = true, n.Name.Name+"."
			case *ast.Field:
				for _, name := range n.Names {
					names[of+name.Name] = true
				}
			case *ast.ValueSpec:
				for _, name := range n.Names {
					names[name.Name] = true
				}
			}
			return true
		})
	}
	return names
}

// code returns the blocks and spans of code of a page.
func (p page) code() string {
	return strings.Join(append(p.spans(), fence.FindAllString(p.text, -1)...), "\n")
}

// TestNamesOfClientsAndSDKsExist checks names such as tempool.Dial, Pool.Checkout, sdk.Errorf, tempool.on_start and
// pool.sessions.bind.
func TestNamesOfClientsAndSDKsExist(t *testing.T) {
	client, sdk := exported(t, "."), exported(t, "sdk/go")
	packages := map[string]map[string]bool{"sdk": sdk, "cli": exported(t, "cmd/tempool/cli"),
		"codec": exported(t, "codec")}
	agent := exported(t, "worker")
	python := Read(t, "sdk/python/tempool/__init__.py")
	pythonClient := Read(t, "sdk/python/tempool/client/__init__.py")
	sessions := Read(t, "sdk/python/tempool/client/sessions.py")
	attributes := sources(t, "gateway/", "worker/", "activities/", "internal/", "process/", "workflows/")
	name := regexp.MustCompile(`\b(tempool|sdk|cli|codec|worker)\.([A-Za-z]\w*(?:\.[A-Z]\w*)?)`)
	method := regexp.MustCompile(`\b(Client|Pool|Session|Lease|Options|CheckoutOptions|CallOptions)\.([A-Z]\w*)`)
	var wrong []string
	for _, p := range pages(t) {
		if strings.HasPrefix(p.path, "docs/internals/") {
			continue // it also names what is not exported
		}
		code := p.code()
		for _, found := range name.FindAllStringSubmatch(code, -1) {
			of, what := found[1], found[2]
			exists := packages[of][what]
			switch {
			case strings.HasPrefix(found[0], "tempool.client."):
				exists = strings.Contains(pythonClient, `"`+strings.TrimPrefix(what, "client.")+`"`)
			case of == "tempool":
				exists = client[what] || client[strings.SplitN(what, ".", 2)[0]] ||
					regexp.MustCompile(`"`+what+`"`).MatchString(python) ||
					strings.Contains(attributes, `"tempool.`+what+`"`) || slices.Contains([]string{"client", "gc", "testing"}, what) ||
					path.Ext("tempool."+what) == ".json"
			case of == "worker":
				exists = agent[what] || what[0] >= 'a' // worker.transitioned, worker.py
			}
			if !exists {
				wrong = append(wrong, p.path+" names "+found[0])
			}
		}
		for _, found := range method.FindAllStringSubmatch(code, -1) {
			if !client[found[0]] {
				wrong = append(wrong, p.path+" names "+found[0])
			}
		}
		for _, found := range regexp.MustCompile(`\.sessions\.([a-z_]+)\b`).FindAllStringSubmatch(code, -1) {
			if !strings.Contains(sessions, "    def "+found[1]+"(") {
				wrong = append(wrong, p.path+" names "+found[0])
			}
		}
	}
	require.Empty(t, wrong)
}

// TestNamesOfTheNodeSDKExist checks what the pages import, and the hooks that they name.
func TestNamesOfTheNodeSDKExist(t *testing.T) {
	index := Read(t, "sdk/node/lib/index.js")
	var wrong []string
	for _, p := range pages(t) {
		var names []string
		for _, found := range regexp.MustCompile(`import \{ ([^}]+) \} from 'tempool'`).FindAllStringSubmatch(p.text, -1) {
			names = append(names, strings.Split(found[1], ", ")...)
		}
		for _, code := range p.spans() {
			names = append(names, regexp.MustCompile(`^on[A-Z][a-zA-Z]+\b`).FindAllString(code, -1)...)
		}
		for _, name := range names {
			if !regexp.MustCompile(`export .*\b` + name + `\b`).MatchString(index) {
				wrong = append(wrong, p.path+" names "+name)
			}
		}
	}
	require.Empty(t, wrong)
}

// TestGoCodeParses checks the syntax of the blocks of Go, whether they are files, declarations or statements.
func TestGoCodeParses(t *testing.T) {
	block := regexp.MustCompile("(?ms)^```go\n(.*?)^```$")
	var wrong []string
	for _, p := range pages(t) {
		for _, found := range block.FindAllStringSubmatch(p.text, -1) {
			code := strings.ReplaceAll(found[1], "…", "")
			parses := slices.ContainsFunc([]string{code, "package p\n" + code, "package p\nfunc f() {\n" + code + "\n}"},
				func(file string) bool {
					_, err := parser.ParseFile(token.NewFileSet(), "", file, parser.SkipObjectResolution)
					return err == nil
				})
			if !parses {
				wrong = append(wrong, p.path+": "+found[1])
			}
		}
	}
	require.Empty(t, wrong)
}
