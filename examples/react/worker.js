// Renders React on the server: props in, HTML out, without a browser.
import { createElement as h } from 'react'
import { renderToString } from 'react-dom/server'

const { method, run, TempoolError } = await import(new URL(process.env.NODE_SDK, import.meta.url)) // a package in a project of your own: 'tempool'

function Item({ name, price }) {
  return h('li', null, name, ' ', h('b', null, price.toFixed(2)))
}

function Cart({ customer, items }) {
  if (items.length === 0) return h('p', null, customer, ', your cart is empty.')
  const total = items.reduce((sum, item) => sum + item.price, 0)
  return h('main', null, h('h1', null, 'Cart of ', customer), h('ul', null, items.map(item => h(Item, { key: item.name, ...item }))), h('p', null, 'Total: ', total.toFixed(2)))
}

method('cart', { raw: true }, body => {
  const { customer, items } = JSON.parse(body)
  if (typeof customer !== 'string' || !Array.isArray(items)) throw new TempoolError('props are {customer, items: [{name, price}]}', { code: 'bad_props' })
  return renderToString(h(Cart, { customer, items }))
})

run()
