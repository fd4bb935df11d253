/** The documentation's site, with local search. A dead link is an error, and nothing is fetched. */

import { defineConfig } from 'vitepress'
import { readSections } from '../pages.js'

export default defineConfig({
  title: 'Rondo',
  description: 'MCP tools that stop in the middle, ask the user, and continue',
  // No picture: browsers would otherwise ask for /favicon.ico.
  head: [['link', { rel: 'icon', href: 'data:,' }]],
  srcDir: 'pages',
  outDir: 'dist',
  cacheDir: 'node_modules/.cache',
  cleanUrls: true,
  themeConfig: {
    search: { provider: 'local' },
    nav: [
      { text: 'First tool', link: '/guide/01-first-tool' },
      { text: 'All pages', link: '/pages' },
    ],
    sidebar: readSections(),
    outline: [2, 3],
  },
})
