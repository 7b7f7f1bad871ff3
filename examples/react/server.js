// A web server whose pages are rendered by the pool: the server itself stays responsive, whatever a component does.
import http from 'node:http'

const { Client } = await import(new URL(process.env.NODE_SDK_CLIENT, import.meta.url)) // a package in a project of your own: 'tempool/client'
const statuses = { bad_props: 400, queue_full: 429, queue_timeout: 503, deadline_exceeded: 504 }
const pool = new Client().pool('react')

export const server = http.createServer(async (request, response) => {
  const left = new AbortController()
  response.on('close', () => left.abort()) // a browser that leaves cancels its call
  try {
    const props = { customer: new URL(request.url, 'http://shop').searchParams.get('customer') ?? '', items: [] }
    const html = await pool.callRaw('cart', JSON.stringify(props), { timeout: 2000, signal: left.signal })
    response.writeHead(200, { 'Content-Type': 'text/html; charset=utf-8' }).end(html)
  } catch (error) {
    if (!left.signal.aborted) response.writeHead(statuses[error.workerCode ?? error.code] ?? 502).end(error.message)
  }
})
server.listen(Number(process.env.PORT ?? 8080), '127.0.0.1')
