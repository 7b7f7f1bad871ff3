package ui

import (
	"net/url"
	"strconv"
)

// pageSize is how many rows a page has.
const pageSize = 100

// pager leads through the pages of a list.
type pager struct {
	Total, From, To int // rows; From counts from 1
	Page, Pages     int // Page counts from 1
	Previous, Next  string
	start           int
}

// newPager is the pager of the page that a URL asks for.
func newPager(u *url.URL, total int) pager {
	p := pager{Total: total, Pages: max(1, (total+pageSize-1)/pageSize)}
	asked, _ := strconv.Atoi(u.Query().Get("page")) // anything else is the first
	p.Page = min(max(asked, 1), p.Pages)
	p.start = (p.Page - 1) * pageSize
	p.From, p.To = min(p.start+1, total), min(p.start+pageSize, total)
	if p.Page > 1 {
		p.Previous = withPage(u, p.Page-1)
	}
	if p.Page < p.Pages {
		p.Next = withPage(u, p.Page+1)
	}
	return p
}

func withPage(u *url.URL, page int) string {
	query := u.Query()
	query.Set("page", strconv.Itoa(page))
	return u.Path + "?" + query.Encode()
}

// paged are the rows of a pager's page.
func paged[T any](rows []T, p pager) []T { return rows[p.start:p.To] }
